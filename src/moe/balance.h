#pragma once

#include <ATen/core/Tensor.h>

#include "moe/router.h"
#include "moe/row_ranks.h"
#include "nn/forward_context.h"
#include "parallel/group.h"

namespace switchyard {

// `own`: the tokens of the row that this rank routes.

// How often the real tokens among `own` chose each expert, before any dropping.
// [num_experts] int64
at::Tensor count_tokens_per_expert(const Routing& routing, const ForwardContext& context,
                                   const TokenRanges& own);

// Balance loss per sequence (Switch Transformer, arXiv:2101.03961, over top_k copies; DeepSeek-V3,
// arXiv:2412.19437, equations 17 to 20), averaged over the sequences of the global batch by their
// length:
//   sum over sequences of (length / batch tokens) x num_experts / (top_k x length^2)
//       x sum over experts of (sum of probabilities) x (number of tokens that chose it)
// 1 when balanced. A sequence's counts are summed over the ranks of its row, so the value is the
// same in every layout. Returns this rank's part of the sum over ranks, [], differentiable in the
// probabilities. Counts come from the plain top_k of the probabilities, without the selection bias.
// Collective over tp and cp.
at::Tensor sequence_balance_loss(const Routing& routing, const ForwardContext& context,
                                 const TokenRanges& own, const RowRanks& ranks);

// How often the plain top_k of the probabilities of all real tokens of an accumulation step, over
// all ranks of `all_ranks`, chose each expert, and in the last element how many tokens there were.
// [num_experts + 1] fp64. Collective over all_ranks (dp x cp x tp).
at::Tensor count_step_loads(const Routing& routing, const ForwardContext& context,
                            const TokenRanges& own, const Group& all_ranks);

// Balance loss of a whole set of tokens with these loads, from count_step_loads(), of one
// accumulation step or summed over several (global-batch balance, arXiv:2501.11873):
//   num_experts / top_k x sum over experts of (mean probability) x (load / tokens)
// with the mean over this accumulation step, weighted by the step's share of the batch's tokens. 1
// when balanced. Returns this rank's part of the sum over ranks and steps, [], differentiable in
// the probabilities. Not collective.
at::Tensor set_balance_loss(const Routing& routing, const ForwardContext& context,
                            const TokenRanges& own, const at::Tensor& loads, Ledger& ledger);

// Router z-loss (ST-MoE, arXiv:2202.08906, equation 5): the mean over the real tokens of the global
// batch of logsumexp(logits)^2. Returns this rank's part of the sum over ranks, []. Not collective.
at::Tensor router_z_loss(const Routing& routing, const ForwardContext& context,
                         const TokenRanges& own, Ledger& ledger);

}  // namespace switchyard
