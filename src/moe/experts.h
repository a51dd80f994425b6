#pragma once

#include <utility>

#include "config/config.h"
#include "moe/token_dispatcher.h"
#include "nn/parameters.h"
#include "ops/expert_mlp.h"

namespace switchyard {

// What experts computed in forward passes, those that are computed again in backward included.
struct ExpertWork {
  double seconds = 0;  // in their operator: products and the activation between them
  double flops = 0;    // of the products, two per multiply-add

  void add(const ExpertWork& more) {
    seconds += more.seconds;
    flops += more.flops;
  }
};

// The routed experts of one layer, MLPs of equal shape, computed by one operator
// (ops/expert_mlp.h), never one after the other. Parameters: gate_up [num_experts, 2, ffn, hidden],
// or without a gate up [num_experts, ffn, hidden], and down [num_experts, hidden, ffn], cut over ep
// by expert and over etp by ffn; with biases also gate_up_bias [num_experts, 2, ffn], or up_bias,
// cut alike, and down_bias [num_experts, hidden], cut over etp by hidden, so that each element is
// added once. With moe.latent_size `hidden` is that.
class GroupedExperts {
 public:
  GroupedExperts(const Scope& scope, const ModelConfig& model, const MoeConfig& moe);

  // (down(activation(gate(x)) * up(x)) + down_bias) * weight for each row. [received, hidden]; with
  // etp, this rank's part of a sum over etp.
  at::Tensor forward(const DispatchedTokens& dispatched) const;

  // Since the last call, on this rank.
  ExpertWork take_work() { return std::exchange(work_, {}); }

 private:
  void declare_biases(const Scope& scope, const ModelConfig& model, const MoeConfig& moe);

  at::Tensor up_;    // [local_experts, 2 x ffn/etp, hidden], or without a gate half of it
  at::Tensor down_;  // [local_experts, hidden, ffn/etp]
  ExpertMlpOptions options_;
  mutable ExpertWork work_;
};

}  // namespace switchyard
