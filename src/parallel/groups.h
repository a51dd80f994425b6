#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "parallel/group.h"
#include "parallel/mesh.h"
#include "parallel/slow_link.h"
#include "parallel/watchman.h"

namespace switchyard {

// Groups whose transfers are made slower, to try out a slower network.
struct SlowGroups {
  std::vector<GroupName> names = {};
  LinkSpeed speed = {};  // of one link that they share
};

// What the settings slow_link, link_latency_us and link_gb_per_s ask for. Throws ConfigError for a
// group that there is not.
SlowGroups slow_groups(const ParallelConfig& parallel);

// All groups of one rank, with its mesh and its ledger. Passed to whoever communicates; never
// global, so that the ranks of a test can be threads of one process.
class Groups {
 public:
  // `transport` connects the world; null for a world of one rank. Not collective.
  Groups(Mesh mesh, int64_t rank, std::shared_ptr<Transport> transport, bool verify_calls = false,
         const SlowGroups& slow = {});
  Groups(const Groups&) = delete;
  Groups& operator=(const Groups&) = delete;

  // One rank that never communicates.
  static std::unique_ptr<Groups> single();

  const Group& operator[](GroupName name) const;
  const Group& tensor() const { return (*this)[GroupName::kTensor]; }

  const Mesh& mesh() const { return mesh_; }
  int64_t rank() const { return rank_; }  // in the world
  // The machine of each rank of the world, numbered from 0: as the mesh declares them, else as the
  // launcher said; all 0 where neither did.
  const std::vector<int64_t>& nodes() const { return nodes_; }
  void set_nodes(std::vector<int64_t> nodes);  // throws ShapeError unless one per rank
  Ledger& ledger() const { return ledger_; }

 private:
  Mesh mesh_;
  int64_t rank_;
  std::vector<int64_t> nodes_;
  mutable Ledger ledger_;
  std::vector<Group> groups_;           // in the order of GroupName
  std::unique_ptr<Watchman> watchman_;  // reads what the members above hold
};

}  // namespace switchyard
