#pragma once

#include "config/config.h"
#include "moe/token_dispatcher.h"
#include "nn/parameters.h"

namespace switchyard {

// The routed experts of one layer, gated MLPs of equal shape, computed by one operator
// (ops/expert_mlp.h), never one after the other. Parameters: gate_up [num_experts, 2, ffn, hidden]
// and down [num_experts, hidden, ffn], cut over ep by expert and over etp by ffn.
class GroupedExperts {
 public:
  GroupedExperts(const Scope& scope, const MoeConfig& config, int64_t hidden_size, double init_std,
                 double output_init_std);

  // down(silu(gate(x)) * up(x) * weight) for each row. [received, hidden]; with etp, this rank's
  // part of a sum over etp.
  at::Tensor forward(const DispatchedTokens& dispatched) const;

 private:
  at::Tensor gate_up_;  // [local_experts, 2 x ffn/etp, hidden]
  at::Tensor down_;     // [local_experts, hidden, ffn/etp]
};

}  // namespace switchyard
