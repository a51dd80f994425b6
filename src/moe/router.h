#pragma once

#include <ATen/core/Tensor.h>

#include "config/config.h"
#include "nn/parameters.h"

namespace switchyard {

// Where each token goes. Decided once per token and step: recompute and replay reuse `expert_ids`.
struct Routing {
  at::Tensor expert_ids;  // [tokens, top_k] int64, distinct in a row
  at::Tensor weights;     // [tokens, top_k] fp32 or fp64, differentiable
  at::Tensor logits;      // [tokens, num_experts] fp32 or fp64, differentiable
  // [tokens, num_experts] differentiable: scores over all experts that add up to 1 per token, as
  // the balance loss sees them. Undefined in a layer without a balance loss.
  at::Tensor probabilities;
};

// Chooses top_k of num_experts for each token, by ops/route.h. Computed in fp32 (fp64 for fp64
// input, or when moe.router_dtype says so) whatever the input is: rounding scores to bf16 changes
// which experts win. Ties go to the lowest id.
// Parameters: weight [num_experts, hidden], with moe.router_bias also bias [num_experts]; buffer
// with moe.expert_bias: expert_bias [num_experts].
// Sources: Mixtral and Qwen3-MoE (softmax), DeepSeek-V2 arXiv:2405.04434 (groups), DeepSeek-V3
// arXiv:2412.19437 equations 13 to 16 (sigmoid and selection bias).
class Router {
 public:
  Router(const Scope& scope, const MoeConfig& config, int64_t hidden_size, double init_std);

  // tokens [tokens, hidden], each rank of dp x cp x tp its own. `expert_ids`: the choice of an
  // earlier pass to reuse, or undefined. Not collective.
  Routing forward(const at::Tensor& tokens, const at::Tensor& expert_ids) const;

  // Balancing without an auxiliary loss (Wang et al. 2024, arXiv:2408.15664): raises the selection
  // bias of experts with less than the mean load, lowers the others', by a fixed rate. Once per
  // optimizer step, with the loads of the whole global batch. tokens_per_expert [num_experts] int64
  void update_expert_bias(const at::Tensor& tokens_per_expert);
  bool has_expert_bias() const { return expert_bias_.defined(); }
  const at::Tensor& expert_bias() const { return expert_bias_; }

 private:
  at::ScalarType score_dtype(const at::Tensor& tokens) const;

  MoeConfig config_;
  at::Tensor weight_;       // [num_experts, hidden]
  at::Tensor bias_;         // [num_experts]; undefined without
  at::Tensor expert_bias_;  // [num_experts] master dtype; undefined without balancing by bias
};

}  // namespace switchyard
