#pragma once

#include <cstdint>
#include <optional>

#include <ATen/core/Tensor.h>

#include "base/sequence_table.h"

namespace switchyard {

struct AttentionOptions {
  std::optional<double> scale;  // of the scores; 1 / sqrt(head_dim) when not given
  int64_t window = 0;           // a token sees itself and window - 1 before it; 0: all before it
};

struct AttentionOutput {
  at::Tensor out;          // [tokens, heads, head_dim], dtype of q
  at::Tensor log_sum_exp;  // [tokens, heads], fp32 or fp64: log of the sum of exp(scaled score)
};

// Causal attention within each sequence of the table: token i of a sequence sees tokens 0 to i of
// the same sequence, or the last `window` of these, so that packed equals unpacked. Tokens of
// padding give zeros, and get zero gradients; their log_sum_exp is 0.
//
// q [tokens, heads, head_dim], k and v [tokens, kv_heads, head_dim], fp64, fp32 or bf16, any
// strides with adjacent head_dim; query head h reads kv head h / (heads / kv_heads). Softmax is
// taken in the wider of fp32 and q. Differentiable in q, k and v through `out`; log_sum_exp is
// detached. Throws ShapeError when sizes or dtypes do not fit. The same bits for every number of
// threads.
AttentionOutput attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                          const SequenceTable& table, const AttentionOptions& options = {});

// Attention of new tokens to a cache of one sequence: query i has position first_position + i and
// sees keys 0 to that position, or the last `window` of these. q [new_tokens, heads, head_dim], k
// and v [all_tokens, kv_heads, head_dim], all_tokens at least first_position + new_tokens ->
// [new_tokens, heads, head_dim]. Not differentiable.
at::Tensor attention_with_cache(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                                int64_t first_position, const AttentionOptions& options = {});

}  // namespace switchyard
