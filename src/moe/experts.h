#pragma once

#include "config/config.h"
#include "moe/token_dispatcher.h"
#include "nn/parameters.h"
#include "ops/expert_mlp.h"

namespace switchyard {

// The routed experts of one layer, MLPs of equal shape, computed by one operator
// (ops/expert_mlp.h), never one after the other. Parameters: gate_up [num_experts, 2, ffn, hidden],
// or without a gate up [num_experts, ffn, hidden], and down [num_experts, hidden, ffn], cut over ep
// by expert and over etp by ffn; with biases also gate_up_bias [num_experts, 2, ffn], or up_bias,
// cut alike, and down_bias [num_experts, hidden], cut over etp by hidden, so that each element is
// added once.
class GroupedExperts {
 public:
  GroupedExperts(const Scope& scope, const ModelConfig& model, const MoeConfig& moe);

  // (down(activation(gate(x)) * up(x)) + down_bias) * weight for each row. [received, hidden]; with
  // etp, this rank's part of a sum over etp.
  at::Tensor forward(const DispatchedTokens& dispatched) const;

 private:
  void declare_biases(const Scope& scope, const ModelConfig& model, const MoeConfig& moe);

  at::Tensor up_;    // [local_experts, 2 x ffn/etp, hidden], or without a gate half of it
  at::Tensor down_;  // [local_experts, hidden, ffn/etp]
  ExpertMlpOptions options_;
};

}  // namespace switchyard
