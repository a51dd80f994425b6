#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <ATen/core/Tensor.h>

#include "parallel/call.h"
#include "parallel/ledger.h"
#include "parallel/placement.h"
#include "parallel/reduce.h"

namespace switchyard {

// A collective under way. wait() returns when its result may be read, throws CommError when a peer
// is lost, and writes the ledger. Not waiting before destruction is a bug: the destructor waits.
class PendingCollective {
 public:
  PendingCollective() = default;
  explicit PendingCollective(std::function<void()> finish) : finish_(std::move(finish)) {}
  PendingCollective(PendingCollective&& other) noexcept;
  PendingCollective& operator=(
      PendingCollective&& other) noexcept;  // waits for the one it replaces
  ~PendingCollective();
  void wait();

 private:
  void wait_and_forget() noexcept;

  std::function<void()> finish_;
};

// Rows on their way: `rows` may be read when wait() has returned them.
struct PendingRows {
  at::Tensor rows;
  PendingCollective pending = {};

  at::Tensor wait() {
    pending.wait();
    return rows;
  }
};

// A set of ranks that communicate, seen from one of them. Every method is collective over the group
// except rank(), size(), members(), name() and the transfers from one member to another: all
// members must call it, in the same order, one thread of each. A group of one rank copies nothing.
//
// Deterministic: every sum is taken in rank order, in the wider of fp32 and the dtype, and rounded
// once. So it depends neither on timing nor on where an element lies, all ranks get the same bits,
// and a reduce_scatter followed by an all_gather gives those of an all_reduce.
//
// Results carry no gradient: a tensor that requires one is refused while gradients are recorded;
// take parallel/collectives.h, or detach it.
//
// Calls of another kind, site or size on different ranks never meet: they end by the timeout. With
// verify_calls all members first compare what they are about to call, which takes a round trip or
// two, and all throw CommError at the first call that differs, saying who calls what; of what one
// member sends to one other, both say what they do while it travels, and compare at wait(). All
// throw CommError, with this rank's coordinates, the collective, the group and what the other
// members last said, when a member does not take part.
class Group {
 public:
  // `transport` is null for a group of one.
  Group(GroupMembers members, std::shared_ptr<Transport> transport, Ledger& ledger,
        bool verify_calls = false);
  Group(Group&&) = default;

  int64_t rank() const { return members_.own; }  // within the group
  int64_t size() const { return static_cast<int64_t>(members_.ranks.size()); }
  const std::vector<int64_t>& members() const { return members_.ranks; }  // ranks in the world
  const std::string& name() const { return members_.name; }
  Ledger& ledger() const { return ledger_; }

  // In place. `values` must be contiguous. Started, it goes on by itself while the caller computes,
  // and `values` must be left alone until wait() returns.
  void all_reduce(at::Tensor values, const Site& site, ReduceOp op = ReduceOp::kSum) const;
  [[nodiscard]] PendingCollective start_all_reduce(at::Tensor values, const Site& site,
                                                   ReduceOp op = ReduceOp::kSum) const;

  // `local` is this rank's shard_range(full, size, rank) of `dim`; returns all of it.
  at::Tensor all_gather(const at::Tensor& local, int64_t dim, int64_t full, const Site& site) const;

  // The sum of `values` over the ranks, of which this rank gets its shard_range of `dim`.
  at::Tensor reduce_scatter(const at::Tensor& values, int64_t dim, const Site& site) const;

  // Rows of dim 0 change hands: the first send_counts[0] rows go to rank 0, and so on; the result
  // holds receive_counts[0] rows from rank 0, then those from rank 1. Counts may be zero.
  at::Tensor all_to_all(const at::Tensor& rows, const std::vector<int64_t>& send_counts,
                        const std::vector<int64_t>& receive_counts, const Site& site) const;
  // Started, it goes on by itself while the caller computes, and `rows` must be left alone.
  [[nodiscard]] PendingRows start_all_to_all(const at::Tensor& rows,
                                             const std::vector<int64_t>& send_counts,
                                             const std::vector<int64_t>& receive_counts,
                                             const Site& site) const;

  // A step around the ring: `rows` go to the next member, and `received` gets those of the member
  // before. Both contiguous; the member before sends as many rows as `received` has. Both must be
  // left alone until wait() returns.
  [[nodiscard]] PendingCollective start_shift(const at::Tensor& rows, at::Tensor received,
                                              const Site& site) const;

  // As all_gather and reduce_scatter along dim 0, with row counts that differ by rank and are known
  // to all: counts[i] rows belong to rank i.
  at::Tensor all_gather_rows(const at::Tensor& rows, const std::vector<int64_t>& counts,
                             const Site& site) const;
  at::Tensor reduce_scatter_rows(const at::Tensor& rows, const std::vector<int64_t>& counts,
                                 const Site& site) const;
  // Started, they go on by themselves while the caller computes, and `rows` must be left alone.
  [[nodiscard]] PendingRows start_all_gather_rows(const at::Tensor& rows,
                                                  const std::vector<int64_t>& counts,
                                                  const Site& site) const;
  [[nodiscard]] PendingRows start_reduce_scatter_rows(const at::Tensor& rows,
                                                      const std::vector<int64_t>& counts,
                                                      const Site& site) const;

  // As all_gather_rows, into `result`, contiguous, of as many rows as the counts add up to. It goes
  // on by itself while the caller computes; `result` must be left alone until wait() returns.
  [[nodiscard]] PendingCollective start_all_gather_rows(const at::Tensor& rows,
                                                        const std::vector<int64_t>& counts,
                                                        at::Tensor result, const Site& site) const;

  // The text or the counts of every member, in rank order. Texts may differ in length, the number
  // of counts may not.
  std::vector<std::string> all_gather_text(const std::string& text, const Site& site) const;
  std::vector<std::vector<int64_t>> all_gather_counts(const std::vector<int64_t>& counts,
                                                      const Site& site) const;

  // From one member to one other; not collective. What a member sends another arrives in the order
  // in which that one receives: the n-th receive gets the n-th send, which must have its site and
  // size. Values must be contiguous and left alone until wait(), which for a send returns when they
  // were received. To itself a member cannot send.
  [[nodiscard]] PendingCollective start_send(const at::Tensor& values, int64_t to,
                                             const Site& site) const;
  [[nodiscard]] PendingCollective start_receive(at::Tensor values, int64_t from,
                                                const Site& site) const;

  // In place: the values of group rank `root` reach every member.
  void broadcast(at::Tensor values, int64_t root, const Site& site) const;
  void barrier(const Site& site) const;

 private:
  bool communicates(const Site& site) const;
  size_t own() const { return static_cast<size_t>(members_.own); }
  std::vector<int64_t> shard_sizes(int64_t full) const;
  std::shared_ptr<Call> begin(std::string_view collective, const Site& site, int64_t num_exchanges,
                              const CallContent& content) const;

  // Whether who started a collective goes on meanwhile: if not, it is made in wait().
  enum class Goes { kNow, kInBackground };

  PendingCollective start_transfer(const at::Tensor& values, int64_t other, bool is_send,
                                   const Site& site) const;
  PendingCollective reduce(const at::Tensor& values, const Site& site, ReduceOp op,
                           Goes goes) const;
  PendingCollective reduce_directly(const at::Tensor& flat, const Site& site, ReduceOp op) const;
  PendingCollective reduce_in_two_steps(const at::Tensor& flat, const Site& site, ReduceOp op,
                                        Goes goes) const;
  at::Tensor gather(const at::Tensor& local, int64_t dim, const std::vector<int64_t>& sizes,
                    const Site& site) const;
  PendingRows sum_and_cut(const at::Tensor& values, int64_t dim, const std::vector<int64_t>& sizes,
                          const Site& site, Goes goes) const;
  PendingRows exchange(const at::Tensor& rows, const std::vector<int64_t>& send_counts,
                       const std::vector<int64_t>& receive_counts, const Site& site,
                       Goes goes) const;
  static PendingCollective perform(const std::shared_ptr<Call>& call,
                                   const std::function<void()>& work, Goes goes);

  GroupMembers members_;
  std::shared_ptr<Transport> transport_;
  Ledger& ledger_;
  bool verify_calls_;
  mutable uint32_t next_exchange_ = 0;
  mutable std::vector<uint32_t> num_sent_;      // to each member, by start_send()
  mutable std::vector<uint32_t> num_received_;  // from each
};

}  // namespace switchyard
