#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "parallel/group.h"
#include "parallel/mesh.h"

namespace switchyard {

// All groups of one rank, with its mesh and its ledger. Passed to whoever communicates; never global,
// so that the ranks of a test can be threads of one process.
class Groups {
 public:
  // Makes the backend of a group: its key (equal on all members, unique per group), this rank's place
  // and the size. Called in the same order on all ranks, for groups of more than one rank.
  using MakeBackend =
      std::function<std::shared_ptr<Group::Backend>(const std::string& key, int64_t rank, int64_t size)>;

  Groups(Mesh mesh, int64_t rank, const MakeBackend& make_backend);
  Groups(const Groups&) = delete;
  Groups& operator=(const Groups&) = delete;

  // One rank that never communicates.
  static std::unique_ptr<Groups> single();

  const Group& operator[](GroupName name) const;
  const Group& tensor() const { return (*this)[GroupName::kTensor]; }

  const Mesh& mesh() const { return mesh_; }
  int64_t rank() const { return rank_; }  // in the world
  Ledger& ledger() const { return ledger_; }

 private:
  Mesh mesh_;
  int64_t rank_;
  mutable Ledger ledger_;
  std::vector<Group> groups_;  // in the order of GroupName
};

}  // namespace switchyard
