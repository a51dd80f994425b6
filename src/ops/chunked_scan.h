#pragma once

#include <optional>

#include <ATen/core/Tensor.h>

#include "base/sequence_table.h"
#include "ops/selective_scan.h"

namespace switchyard {

struct ChunkedScanInputs {
  at::Tensor x;   // [tokens, heads, head_dim]: all tokens of the table's row; fp64, fp32 or bf16
  at::Tensor dt;  // [tokens, heads], time steps, 0 or more; fp32, or fp64 for fp64
  at::Tensor a;   // [heads], negative; dtype of dt
  at::Tensor b;   // [tokens, groups, state_size], dtype of x; groups divides heads
  at::Tensor c;   // as b; head h reads group h / (heads / groups)
  at::Tensor d;   // [heads], dtype of dt
  // [num_sequences, heads, head_dim, state_size], dtype of dt; zeros when not given
  std::optional<at::Tensor> state;
};

// The scan of Mamba-2 (Dao and Gu 2024, arXiv:2405.21060), along each sequence of the table:
//   h[t] = exp(dt[t] a) h[t - 1] + dt[t] x[t] b[t]^T        [head_dim, state_size], for each head
//   out[t] = h[t] c[t] + d x[t]
// by chunks of chunk_size tokens: within a chunk as attention with decaying weights, by matrix
// products; between chunks by the recurrence (their section 6). Tokens of padding give zeros, and
// get zero gradients.
//
// Computed in the wider of fp32 and x; chunk_size changes rounding only. Differentiable in all
// inputs, through both outputs; saves the inputs and the state before each chunk. Throws ShapeError
// when sizes or dtypes do not fit. The same bits for every number of threads.
ScanOutput chunked_scan(const ChunkedScanInputs& inputs, const SequenceTable& table,
                        int64_t chunk_size);

// The same by the recurrence, token by token: for the few new tokens of one sequence that is being
// generated, whose state must be given. Not differentiable.
ScanOutput step_scan(const ChunkedScanInputs& inputs);

}  // namespace switchyard
