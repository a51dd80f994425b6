#pragma once

#include "base/activation.h"
#include "config/config.h"
#include "nn/linear.h"

namespace switchyard {

// Gated MLP: down(activation(gate(x)) * up(x)) (Shazeer 2020, arXiv:2002.05202), or without a gate
// down(activation(up(x))), cut over tp by the inner features. Parameters: gate_up [2, ffn, hidden],
// or without a gate up [ffn, hidden], and down [hidden, ffn]; with biases also gate_up_bias
// [2, ffn], or up_bias [ffn], and down_bias [hidden].
class Mlp {
 public:
  // Of what the gate's product and the output are multiplied by.
  struct Multipliers {
    double gate = 1;
    double output = 1;
  };

  Mlp(const Scope& scope, const Config& config, int64_t ffn_hidden_size, bool has_bias,
      const Multipliers& multipliers);

  // [tokens, hidden] -> the same, placed as the input. Collective over tp.
  Placed forward(const Placed& hidden) const;

 private:
  at::Tensor with_gate_multiplied(const at::Tensor& gate_up) const;

  MlpFunction function_;
  Multipliers multipliers_;
  ColumnLinear up_;  // and the gate before it
  RowLinear down_;
};

}  // namespace switchyard
