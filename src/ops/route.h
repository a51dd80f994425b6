#pragma once

#include <cstdint>
#include <optional>

#include <ATen/core/Tensor.h>

#include "base/score_function.h"

namespace switchyard {

// How experts are chosen out of logits; the settings of the section `moe` explain each.
struct RouteOptions {
  int64_t top_k = 1;
  ScoreFunction score_function = ScoreFunction::kSoftmax;
  bool softmax_over_chosen = true;  // softmax only: over the chosen logits instead of over all
  bool renormalize = false;
  double scaling_factor = 1;
  int64_t num_groups = 1;
  int64_t group_top_k = 1;
  int64_t scores_per_group = 1;  // the best scores of a group that add up to the group's own
};

struct Routes {
  at::Tensor expert_ids;  // [tokens, top_k] int64, k distinct ids, the best first
  at::Tensor weights;     // [tokens, top_k] dtype of the logits
  // [tokens, num_experts] scores of all experts, divided by their sum per token; undefined unless
  // asked for
  at::Tensor probabilities;
};

// The choice of experts and their weights, in one operator. For a token with `logits`:
//   scores   softmax, sigmoid or sqrt(softplus) of all its logits
//   ranking  scores + bias; for softmax the logits, but the scores with groups or a bias, when it
//   is
//            over all
//   groups   each group's score is the sum of the best scores_per_group of its ranking; outside the
//            best group_top_k groups the ranking becomes minus infinity
//   ids      the best top_k of the ranking; ties go to the lowest id, for groups too
//   weights  scores of the ids, or softmax over their logits; renormalize divides them by their
//            sum + 1e-20; then times scaling_factor
//   probabilities  scores / (their sum + 1e-20)
// logits [tokens, num_experts] fp32 or fp64. `bias` [num_experts] of any of the two, or undefined,
// acts on the choice only. `expert_ids`, if defined, replaces the choice; its rows must hold top_k
// distinct ids in range. Differentiable in the logits, through weights and probabilities. Throws
// ShapeError. The same bits for every number of threads.
// Sources: DeepSeek-V2 arXiv:2405.04434 and V3 arXiv:2412.19437 (groups), Qwen, Mixtral.
Routes route(const at::Tensor& logits, const at::Tensor& bias, const at::Tensor& expert_ids,
             const RouteOptions& options, bool wants_probabilities);

}  // namespace switchyard
