#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include <ATen/core/Tensor.h>

#include "base/sequence_table.h"
#include "ops/attention_span.h"

namespace switchyard {

struct AttentionOptions {
  std::optional<double> scale = {};  // of the scores; 1 / sqrt(head_dim) when not given
  int64_t window = 0;  // a token sees itself and window - 1 before it; 0: all before it
  double softcap = 0;  // scaled scores become c tanh(score / c) with c this; 0: as they are
  // [heads], any float dtype: one more score per head, which takes its share of the softmax and
  // gives nothing. Undefined for none.
  at::Tensor sinks = {};
};

struct AttentionOutput {
  at::Tensor out;          // [tokens, heads, head_dim], dtype of q
  at::Tensor log_sum_exp;  // [tokens, heads], fp32 or fp64: log of the sum of exp(score), the
                           // sink's too
};

// Causal attention within each sequence of the table: token i of a sequence sees tokens 0 to i of
// the same sequence, or the last `window` of these, so that packed equals unpacked. Tokens of
// padding give zeros, and get zero gradients; their log_sum_exp is 0.
//
// All tokens of the table's row: q [tokens, heads, head_dim], k and v [tokens, kv_heads, head_dim],
// fp64, fp32 or bf16, any strides with adjacent head_dim; query head h reads kv head
// h / (heads / kv_heads). Softmax is taken in the wider of fp32 and q. Differentiable in q, k, v
// and the sinks through `out`; log_sum_exp is detached. Throws ShapeError when sizes or dtypes do
// not fit. The same bits for every number of threads.
AttentionOutput attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                          const SequenceTable& table, const AttentionOptions& options = {});

// The same over spans, of which no two have a query or a key in common; k and v may have another
// number of rows than q. A query of no span gives zeros and a log_sum_exp of minus infinity, or of
// the sink.
AttentionOutput attention_over(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                               const std::vector<AttentionSpan>& spans,
                               const AttentionOptions& options = {});

// Attention of the same queries to two sets of keys, as attention to both; one of them at most has
// the sinks. The outputs are joined, and returned, in the dtype of log_sum_exp. Not differentiable.
AttentionOutput join(const AttentionOutput& a, const AttentionOutput& b);

struct AttentionGradients {
  at::Tensor q, k, v;
};

// What these keys and values have in the gradients, when `whole` is the output of the attention to
// them, others and sinks. `whole.out` and grad_out [tokens, heads, head_dim] have the dtype of q;
// spans as for attention_over.
AttentionGradients attention_gradients(const at::Tensor& q, const at::Tensor& k,
                                       const at::Tensor& v, const AttentionOutput& whole,
                                       const at::Tensor& grad_out,
                                       const std::vector<AttentionSpan>& spans,
                                       const AttentionOptions& options = {});

// The gradient of the sinks [heads], in their dtype, of an attention whose output is `whole`; a
// query that sees nothing has none. Undefined where the sinks are.
at::Tensor sink_gradients(const AttentionOutput& whole, const at::Tensor& grad_out,
                          const at::Tensor& sinks);

// The sinks as autograd takes them, which wants no undefined tensor.
std::optional<at::Tensor> optional_sinks(const AttentionOptions& options);

// All options but the sinks as numbers, and back, for what autograd keeps.
std::vector<double> numbers_of(const AttentionOptions& options);
AttentionOptions options_from(const std::vector<double>& numbers);

// Attention of new tokens to a cache of one sequence: query i has position first_position + i and
// sees keys 0 to that position, or the last `window` of these. q [new_tokens, heads, head_dim], k
// and v [all_tokens, kv_heads, head_dim], all_tokens at least first_position + new_tokens ->
// [new_tokens, heads, head_dim]. Not differentiable.
at::Tensor attention_with_cache(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                                int64_t first_position, const AttentionOptions& options = {});

}  // namespace switchyard
