#pragma once

#include "config/config.h"
#include "nn/linear.h"

namespace switchyard {

// Gated MLP: down(silu(gate(x)) * up(x)) (SwiGLU, Shazeer 2020, arXiv:2002.05202), cut over tp by
// the inner features. Parameters: gate_up [2, ffn, hidden] and down [hidden, ffn].
class Mlp {
 public:
  Mlp(const Scope& scope, const ModelConfig& model, int64_t ffn_hidden_size);

  // [tokens, hidden] -> the same, placed as the input. Collective over tp.
  Placed forward(const Placed& hidden) const;

 private:
  ColumnLinear gate_up_;
  RowLinear down_;
};

}  // namespace switchyard
