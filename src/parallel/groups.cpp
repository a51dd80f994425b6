#include "parallel/groups.h"

#include <algorithm>

#include <fmt/format.h>

#include "base/error.h"

namespace switchyard {

Groups::Groups(Mesh mesh, int64_t rank, std::shared_ptr<Transport> transport, bool verify_calls)
    : mesh_(std::move(mesh)), rank_(rank), nodes_(mesh_.declared_nodes()) {
  const std::string place = mesh_.describe(rank);
  const std::string whoami = fmt::format("rank {}{}{}", rank, place.empty() ? "" : ": ", place);
  for (int i = 0; i < kNumGroupNames; ++i) {
    const auto name = static_cast<GroupName>(i);
    const auto ranks = mesh_.members(rank, name);
    const auto own = std::find(ranks.begin(), ranks.end(), rank) - ranks.begin();
    groups_.emplace_back(GroupMembers{std::string(to_string(name)), i, ranks, own, whoami},
                         transport, ledger_, verify_calls);
  }
  if (transport != nullptr) {
    watchman_ = std::make_unique<Watchman>(*transport, ledger_.whereabouts());
  }
}

void Groups::set_nodes(std::vector<int64_t> nodes) {
  check<ShapeError>(std::ssize(nodes) == mesh_.world_size(), "{} nodes for {} ranks", nodes.size(),
                    mesh_.world_size());
  nodes_ = std::move(nodes);
}

std::unique_ptr<Groups> Groups::single() {
  return std::make_unique<Groups>(Mesh(MeshShape{}), 0, nullptr);
}

const Group& Groups::operator[](GroupName name) const {
  return groups_[static_cast<size_t>(name)];
}

}  // namespace switchyard
