#pragma once

#include "moe/token_dispatcher.h"

namespace switchyard {

// Each copy travels to the rank that holds its expert, and its result back (GShard,
// arXiv:2006.16668). With expert tensor parallelism the ranks of an etp group then share what they
// received, and sum their parts of the results.
class AllToAllDispatcher final : public TokenDispatcher {
 public:
  AllToAllDispatcher(int64_t num_experts, const Groups& groups);

  DispatchedTokens dispatch(const at::Tensor& tokens, const Routing& routing) const override;
  at::Tensor combine(const at::Tensor& rows, const DispatchedTokens& dispatched) const override;
  RowsUnderWay start_combine(const at::Tensor& rows,
                             const DispatchedTokens& dispatched) const override;
  at::Tensor finish_combine(const RowsUnderWay& results,
                            const DispatchedTokens& dispatched) const override;

 private:
  at::Tensor results_to_return(const at::Tensor& rows, const DispatchedTokens& dispatched) const;

  const Group& expert_group_;         // ep
  const Group& expert_tensor_group_;  // etp
  int64_t num_experts_;
  int64_t num_local_experts_;
};

}  // namespace switchyard
