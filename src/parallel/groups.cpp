#include "parallel/groups.h"

#include <algorithm>
#include <map>

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace switchyard {

Groups::Groups(Mesh mesh, int64_t rank, const MakeBackend& make_backend)
    : mesh_(std::move(mesh)), rank_(rank) {
  const std::string place = mesh_.describe(rank);
  const std::string whoami = fmt::format("rank {}{}{}", rank, place.empty() ? "" : ": ", place);
  // Groups of the same members share one backend: fewer connections, and still one order of calls.
  std::map<std::vector<int64_t>, std::shared_ptr<Group::Backend>> backends;
  for (int i = 0; i < kNumGroupNames; ++i) {
    const auto name = static_cast<GroupName>(i);
    const auto members = mesh_.members(rank, name);
    const auto size = static_cast<int64_t>(members.size());
    const auto place_in_group =
        std::find(members.begin(), members.end(), rank) - members.begin();
    auto& backend = backends[members];
    if (size > 1 && backend == nullptr) {
      backend = make_backend(fmt::format("{}", fmt::join(members, ",")), place_in_group, size);
    }
    groups_.emplace_back(std::string(to_string(name)), place_in_group, size, backend, whoami,
                         ledger_);
  }
}

std::unique_ptr<Groups> Groups::single() {
  return std::make_unique<Groups>(Mesh(MeshShape{}), 0, MakeBackend{});
}

const Group& Groups::operator[](GroupName name) const {
  return groups_[static_cast<size_t>(name)];
}

}  // namespace switchyard
