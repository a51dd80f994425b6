#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "parallel/ledger.h"
#include "parallel/placement.h"

namespace switchyard {

enum class ReduceOp { kSum, kMax };

// A collective under way. wait() returns when its result may be read, throws CommError when a peer
// is lost, and writes the ledger. Not waiting before destruction is a bug: the destructor waits.
class PendingCollective {
 public:
  PendingCollective() = default;
  explicit PendingCollective(std::function<void()> finish) : finish_(std::move(finish)) {}
  PendingCollective(PendingCollective&&) = default;
  PendingCollective& operator=(PendingCollective&&) = default;
  ~PendingCollective();
  void wait();

 private:
  std::function<void()> finish_;
};

// A set of ranks that communicate, seen from one of them. Every method is collective over the group
// except rank(), size() and name(): all members must call it, in the same order. Results do not
// depend on timing: sums are taken in a fixed order. A group of one rank copies nothing.
//
// All throw CommError, with this rank's coordinates, the collective, the group and the timeout, when
// a member does not take part.
class Group {
 public:
  struct Backend;  // c10d's process group, out of sight of other folders

  // `whoami` is "rank 5: tp 1 dp 0"; `backend` is null for a group of one.
  Group(std::string name, int64_t rank, int64_t size, std::shared_ptr<Backend> backend,
        std::string whoami, Ledger& ledger);

  int64_t rank() const { return rank_; }  // within the group
  int64_t size() const { return size_; }
  const std::string& name() const { return name_; }
  Ledger& ledger() const { return ledger_; }

  // In place. `values` must be contiguous.
  void all_reduce(at::Tensor values, const Site& site, ReduceOp op = ReduceOp::kSum) const;
  [[nodiscard]] PendingCollective start_all_reduce(at::Tensor values, const Site& site,
                                                   ReduceOp op = ReduceOp::kSum) const;

  // `local` is this rank's shard_range(full, size, rank) of `dim`; returns all of it.
  at::Tensor all_gather(const at::Tensor& local, int64_t dim, int64_t full, const Site& site) const;

  // Sums `values` over the ranks, in rank order, and returns this rank's shard_range of `dim`. An
  // all-to-all and a local sum: faster than Gloo's own reduce-scatter, and in a fixed order.
  at::Tensor reduce_scatter(const at::Tensor& values, int64_t dim, const Site& site) const;

  // Rows of dim 0 change hands: the first send_counts[0] rows go to rank 0, and so on; the result
  // holds receive_counts[0] rows from rank 0, then those from rank 1. Counts may be zero.
  at::Tensor all_to_all(const at::Tensor& rows, const std::vector<int64_t>& send_counts,
                        const std::vector<int64_t>& receive_counts, const Site& site) const;

  // As all_gather and reduce_scatter along dim 0, with row counts that differ by rank and are known
  // to all: counts[i] rows belong to rank i.
  at::Tensor all_gather_rows(const at::Tensor& rows, const std::vector<int64_t>& counts,
                             const Site& site) const;
  at::Tensor reduce_scatter_rows(const at::Tensor& rows, const std::vector<int64_t>& counts,
                                 const Site& site) const;

  // The same small text or counts of every member, in rank order.
  std::vector<std::string> all_gather_text(const std::string& text, const Site& site) const;
  std::vector<std::vector<int64_t>> all_gather_counts(const std::vector<int64_t>& counts,
                                                      const Site& site) const;

  // In place: the values of group rank `root` reach every member.
  void broadcast(at::Tensor values, int64_t root, const Site& site) const;
  void barrier(const Site& site) const;

 private:
  bool communicates(const Site& site) const;
  PendingCollective pending(void* work, const Site& site, std::string_view collective,
                            int64_t bytes) const;

  std::string name_;
  int64_t rank_;
  int64_t size_;
  std::shared_ptr<Backend> backend_;
  std::string whoami_;
  Ledger& ledger_;
};

}  // namespace switchyard
