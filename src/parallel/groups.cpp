#include "parallel/groups.h"

#include <algorithm>
#include <optional>
#include <set>
#include <string_view>

#include <fmt/ranges.h>

#include "base/error.h"
#include "config/config.h"

namespace switchyard {

namespace {

std::optional<GroupName> find_group(std::string_view name) {
  for (int i = 0; i < kNumGroupNames; ++i) {
    if (to_string(static_cast<GroupName>(i)) == name) {
      return static_cast<GroupName>(i);
    }
  }
  return std::nullopt;
}

std::string all_group_names() {
  std::vector<std::string_view> names;
  for (int i = 0; i < kNumGroupNames; ++i) {
    names.push_back(to_string(static_cast<GroupName>(i)));
  }
  return fmt::format("{}", fmt::join(names, ", "));
}

}  // namespace

SlowGroups slow_groups(const ParallelConfig& parallel) {
  SlowGroups slow{.speed = {.latency_s = parallel.link_latency_us * 1e-6,
                            .bytes_per_s = parallel.link_gb_per_s * 1e9}};
  for (const std::string& word : parallel.slow_link) {
    const auto name = find_group(word);
    check<ConfigError>(name.has_value(), "parallel.slow_link: there is no group {}; there are {}",
                       word, all_group_names());
    slow.names.push_back(*name);
  }
  return slow;
}

Groups::Groups(Mesh mesh, int64_t rank, std::shared_ptr<Transport> transport, bool verify_calls,
               const SlowGroups& slow)
    : mesh_(std::move(mesh)), rank_(rank), nodes_(mesh_.declared_nodes()) {
  const std::string place = mesh_.describe(rank);
  const std::string whoami = fmt::format("rank {}{}{}", rank, place.empty() ? "" : ": ", place);
  const bool has_slow_link = transport != nullptr && !slow.names.empty() && slow.speed.is_slower();
  const auto slow_link = has_slow_link ? make_slow_link(transport, slow.speed) : transport;
  const std::set<GroupName> slow_names(slow.names.begin(), slow.names.end());
  for (int i = 0; i < kNumGroupNames; ++i) {
    const auto name = static_cast<GroupName>(i);
    const auto ranks = mesh_.members(rank, name);
    const auto own = std::find(ranks.begin(), ranks.end(), rank) - ranks.begin();
    groups_.emplace_back(GroupMembers{std::string(to_string(name)), i, ranks, own, whoami},
                         slow_names.contains(name) ? slow_link : transport, ledger_, verify_calls);
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
