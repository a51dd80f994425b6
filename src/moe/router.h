#pragma once

#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "config/config.h"
#include "moe/row_ranks.h"
#include "nn/forward_context.h"
#include "nn/parameters.h"

namespace switchyard {

// Where each token goes. Decided once per token and step: recompute and replay reuse `expert_ids`.
struct Routing {
  at::Tensor expert_ids;  // [tokens, top_k] int64, distinct in a row
  at::Tensor weights;     // [tokens, top_k] fp32 or fp64, differentiable
  at::Tensor logits;      // [tokens, num_experts] fp32 or fp64, before noise; differentiable
  // [tokens, num_experts] differentiable: scores over all experts that add up to 1 per token, as
  // the balance loss sees them. Undefined in a layer without a balance loss.
  at::Tensor probabilities;
  // What is sent to experts, where that is not all of expert_ids: -1 for a copy that capacity
  // drops. [tokens, top_k] int64 or undefined
  at::Tensor kept_ids;
  std::vector<int64_t> padding_rows;  // [num_experts] empty rows to add to each expert, or none

  const at::Tensor& dispatched_ids() const { return kept_ids.defined() ? kept_ids : expert_ids; }
};

// Chooses top_k of num_experts for each token, by ops/route.h. Computed in fp32 (fp64 for fp64
// input, or when moe.router_dtype says so) whatever the input is: rounding scores to bf16 changes
// which experts win. Ties go to the lowest id.
// Parameters: weight [num_experts, hidden], with moe.router_bias also bias [num_experts]; buffer
// with moe.expert_bias: expert_bias [num_experts].
// Sources: Mixtral and Qwen3-MoE (softmax), DeepSeek-V2 arXiv:2405.04434 (groups), DeepSeek-V3
// arXiv:2412.19437 equations 13 to 16 (sigmoid and selection bias).
//
// In training the section `routing` may depart from that. All random numbers are keyed by the run's
// seed, the layer and the number of the token in the run, so that no layout changes them:
//   input_jitter  multiplies each feature of the router's input (Switch Transformer,
//                 arXiv:2101.03961, section 2.2)
//   logit_noise   is added to the logits before anything else (V-MoE, arXiv:2106.05974)
//   random        replaces the logits by standard normal numbers and hands their gradient on to the
//                 logits: for benchmarks
//   sinkhorn      chooses the top_k of the sinkhorn of each sequence's logits (BASE layers,
//                 arXiv:2103.16716; Megatron's form, ops/sinkhorn.h); weights are sigmoid(logits)
//                 for top_k 1, else softmax over all experts, times scaling_factor
class Router {
 public:
  Router(const Scope& scope, const Config& config, const MoeConfig& moe);

  // tokens [tokens, hidden], each rank of dp x cp x tp its own: those of `own` in the row that
  // `context` describes. `expert_ids`: the choice of an earlier pass to reuse, or undefined.
  // Collective over cp x tp when it chooses by sinkhorn.
  Routing forward(const at::Tensor& tokens, const at::Tensor& expert_ids,
                  const ForwardContext& context, const TokenRanges& own) const;

  // Balancing without an auxiliary loss (Wang et al. 2024, arXiv:2408.15664): raises the selection
  // bias of experts with less than the mean load, lowers the others', by a fixed rate. Once per
  // optimizer step, with the loads of the whole global batch. tokens_per_expert [num_experts] int64
  void update_expert_bias(const at::Tensor& tokens_per_expert);
  bool has_expert_bias() const { return expert_bias_.defined(); }
  const at::Tensor& expert_bias() const { return expert_bias_; }

 private:
  at::ScalarType score_dtype(const at::Tensor& tokens) const;
  at::Tensor with_jitter(const at::Tensor& input, const ForwardContext& context,
                         const TokenRanges& own) const;
  at::Tensor with_noise(const at::Tensor& logits, const ForwardContext& context,
                        const TokenRanges& own) const;
  at::Tensor balanced_ids(const at::Tensor& logits, const SequenceTable& table,
                          const TokenRanges& own) const;

  MoeConfig config_;
  RoutingConfig routing_;
  RowRanks ranks_;
  uint64_t seed_;
  std::string name_;        // of the layer's router: keys its random numbers
  at::Tensor weight_;       // [num_experts, hidden]
  at::Tensor bias_;         // [num_experts]; undefined without
  at::Tensor expert_bias_;  // [num_experts] master dtype; undefined without balancing by bias
};

}  // namespace switchyard
