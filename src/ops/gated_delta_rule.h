#pragma once

#include <optional>

#include <ATen/core/Tensor.h>

#include "base/sequence_table.h"
#include "ops/selective_scan.h"

namespace switchyard {

struct DeltaRuleInputs {
  // [tokens, key_heads, key_dim]: all tokens of the table's row; fp64, fp32 or bf16. Each head is
  // divided by sqrt(sum of squares + 1e-6), queries by sqrt(key_dim) too.
  at::Tensor q;
  at::Tensor k;  // as q
  at::Tensor v;  // [tokens, value_heads, value_dim], dtype of q; key_heads divides value_heads
  at::Tensor log_decay;  // [tokens, value_heads], 0 or less; fp32, or fp64 for fp64
  at::Tensor beta;  // [tokens, value_heads], how much of a value is written; dtype of log_decay
  // [num_sequences, value_heads, key_dim, value_dim], dtype of log_decay; zeros when not given
  std::optional<at::Tensor> state;
};

// The gated delta rule (Yang et al. 2024, arXiv:2412.06464), along each sequence of the table, for
// each value head, which reads key head h / (value_heads / key_heads):
//   s' = exp(log_decay[t]) s[t - 1]                              [key_dim, value_dim]
//   s[t] = s' + k[t] beta[t] (v[t] - s'^T k[t])^T
//   out[t] = s[t]^T q[t]                                         [value_dim]
// by chunks of chunk_size tokens: what the tokens of a chunk write follows from one triangular
// system. Tokens of padding give zeros, and get zero gradients.
//
// Computed in the wider of fp32 and q; chunk_size changes rounding only. Differentiable in all
// inputs, through both outputs; out has the shape of v. Saves the inputs and the state before each
// chunk. Throws ShapeError when sizes or dtypes do not fit. The same bits for every number of
// threads.
ScanOutput gated_delta_rule(const DeltaRuleInputs& inputs, const SequenceTable& table,
                            int64_t chunk_size);

// The same by the recurrence, token by token: for the few new tokens of one sequence that is being
// generated, whose state must be given. Not differentiable.
ScanOutput step_delta_rule(const DeltaRuleInputs& inputs);

}  // namespace switchyard
