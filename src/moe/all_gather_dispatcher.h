#pragma once

#include "moe/token_dispatcher.h"

namespace switchyard {

// Every rank sees the tokens of all ranks that share its experts, and computes the copies that
// chose its own; results are reduce-scattered. The simplest dispatcher, and the fastest where top_k
// is close to the number of ranks. A token's results are summed in slot order within a rank, then
// in rank order.
class AllGatherDispatcher final : public TokenDispatcher {
 public:
  AllGatherDispatcher(int64_t num_experts, const Groups& groups);

  DispatchedTokens dispatch(const at::Tensor& tokens, const Routing& routing) const override;
  at::Tensor combine(const at::Tensor& rows, const DispatchedTokens& dispatched) const override;
  RowsUnderWay start_combine(const at::Tensor& rows,
                             const DispatchedTokens& dispatched) const override;

 private:
  std::vector<int64_t> local_padding(const std::vector<int64_t>& padding_rows) const;

  const Group& group_;  // ep x etp
  int64_t num_local_experts_;
  int64_t first_expert_;
};

}  // namespace switchyard
