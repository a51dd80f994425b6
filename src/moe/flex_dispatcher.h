#pragma once

#include <vector>

#include "moe/token_dispatcher.h"

namespace switchyard {

// Tokens travel in two steps: to each node that has some of their experts once, however many these
// are, and from there to each of its ranks that has some, once again; results are summed on the way
// back at the same places, so that one row per token and node returns (DeepSeek-V3,
// arXiv:2412.19437, section 3.2.2). In another node a token arrives at the rank whose place there
// is that of the sender among the ranks of its own. Ranks of etp are like any others: each gets the
// token and returns its part of the sum. Where all ranks share one node the first step is left out.
//
// A token's results are summed slot by slot on the rank of the experts, then over the ranks of a
// node, then over nodes, each sum rounded to the dtype of the rows: so the last bits depend on
// which ranks share a node.
class FlexDispatcher final : public TokenDispatcher {
 public:
  FlexDispatcher(int64_t num_experts, const Groups& groups);
  ~FlexDispatcher() override;

  DispatchedTokens dispatch(const at::Tensor& tokens, const Routing& routing) const override;
  at::Tensor combine(const at::Tensor& rows, const DispatchedTokens& dispatched) const override;

 private:
  struct Step;

  std::vector<int64_t> local_padding(const std::vector<int64_t>& padding_rows) const;

  const Group& group_;  // ep x etp
  int64_t num_local_experts_;
  std::vector<int64_t> first_experts_;  // of each rank of the group
  std::vector<Step> steps_;             // between nodes, then inside one
};

}  // namespace switchyard
