#pragma once

#include <optional>

#include <ATen/core/Tensor.h>

#include "base/sequence_table.h"

namespace switchyard {

struct ScanOutput {
  at::Tensor out;    // shape and dtype of x
  at::Tensor state;  // after the last token of each sequence; fp32, or fp64 for fp64
};

struct SelectiveScanInputs {
  at::Tensor x;   // [tokens, channels]: all tokens of the table's row; fp64, fp32 or bf16
  at::Tensor dt;  // [tokens, channels], time steps, 0 or more; dtype of x
  at::Tensor a;   // [channels, state_size], negative; fp32, or fp64 for fp64
  at::Tensor b;   // [tokens, state_size], dtype of x
  at::Tensor c;   // [tokens, state_size], dtype of x
  at::Tensor d;   // [channels], dtype of a
  // [num_sequences, channels, state_size], dtype of a; zeros when not given
  std::optional<at::Tensor> state;
};

// The selective scan of Mamba-1 (Gu and Dao 2023, arXiv:2312.00752), along each sequence of the
// table:
//   h[t, c, n] = exp(dt[t, c] a[c, n]) h[t - 1, c, n] + dt[t, c] x[t, c] b[t, n]
//   out[t, c]  = sum over n of h[t, c, n] c[t, n] + d[c] x[t, c]
// Tokens of padding give zeros, and get zero gradients.
//
// Computed in the wider of fp32 and x. Differentiable in all inputs, through both outputs; saves
// the inputs and the state at every 64th token. Throws ShapeError when sizes or dtypes do not fit.
// The same bits for every number of threads.
ScanOutput selective_scan(const SelectiveScanInputs& inputs, const SequenceTable& table);

}  // namespace switchyard
