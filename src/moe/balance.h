#pragma once

#include <ATen/core/Tensor.h>

#include "moe/router.h"
#include "nn/forward_context.h"
#include "parallel/group.h"

namespace switchyard {

// The tokens of a row that one rank of a tensor-parallel group routes.
struct TokenRange {
  int64_t begin = 0;
  int64_t end = 0;
};

// How often the real tokens among `range` chose each expert, before any dropping.
// [num_experts] int64
at::Tensor count_tokens_per_expert(const Routing& routing, const ForwardContext& context,
                                   TokenRange range);

// Balance loss per sequence (Switch Transformer, arXiv:2101.03961, over top_k copies; DeepSeek-V3,
// arXiv:2412.19437, equations 17 to 20), averaged over the sequences of the global batch by their
// length:
//   sum over sequences of (length / batch tokens) x num_experts / (top_k x length^2)
//       x sum over experts of (sum of probabilities) x (number of tokens that chose it)
// 1 when balanced. A sequence's counts are summed over the ranks of `tensor_group`, so the value is
// the same in every layout. Returns this rank's part of the sum over ranks, [], differentiable in
// the probabilities. Counts come from the plain top_k of the probabilities, without the selection
// bias. Collective over tensor_group.
at::Tensor sequence_balance_loss(const Routing& routing, const ForwardContext& context,
                                 TokenRange range, const Group& tensor_group);

// Router z-loss (ST-MoE, arXiv:2202.08906, equation 5): the mean over the real tokens of the global
// batch of logsumexp(logits)^2. Returns this rank's part of the sum over ranks, []. Not collective.
at::Tensor router_z_loss(const Routing& routing, const ForwardContext& context, TokenRange range,
                         Ledger& ledger);

}  // namespace switchyard
