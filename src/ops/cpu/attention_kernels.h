#pragma once

#include <cstdint>
#include <vector>

#include "ops/attention_span.h"
#include "ops/float_types.h"

namespace switchyard {

// A [tokens, heads, head_dim] array with adjacent head_dim.
template <class T>
struct HeadRows {
  T* data = nullptr;
  int64_t token_stride = 0;
  int64_t head_stride = 0;

  T* row(int64_t token, int64_t head) const {
    return data + token * token_stride + head * head_stride;
  }
};

struct AttentionShape {
  int64_t heads = 0;
  int64_t kv_heads = 0;
  int64_t head_dim = 0;
  double scale = 1;
  int64_t window = 0;  // keys that a query sees at most; 0 for no limit
  double softcap = 0;  // scaled scores become c tanh(score / c) with c this; 0: as they are
};

template <class T>
struct AttentionForwardArrays {
  HeadRows<const T> q, k, v;
  const Accumulator<T>* sinks;  // [heads], one more score of each query; null for none
  HeadRows<T> out;
  Accumulator<T>* log_sum_exp;  // [tokens, heads]
};

template <class T>
struct AttentionBackwardArrays {
  HeadRows<const T> q, k, v, out, grad_out;
  const Accumulator<T>* log_sum_exp;  // [tokens, heads]
  HeadRows<T> grad_q, grad_k, grad_v;
};

template <class T>
struct AttentionDecodeArrays {
  HeadRows<const T> q, k, v;
  const Accumulator<T>* sinks;  // as above
  HeadRows<T> out;
};

// Attention over spans, each on its own, in which every query sees a key; no two have a query or a
// key in common. Rows of no span are not written. Parallel over spans,
// heads and slices of queries, cut by shape only: the same bits for every number of threads, and
// for a span alone or among others. Compiled for AVX-512, AVX2 with FMA, and any x86-64; the best
// that the processor has is taken.
template <class T>
void attention_forward(const AttentionForwardArrays<T>& arrays, const AttentionShape& shape,
                       const std::vector<AttentionSpan>& spans);

// The gradients of q, k and v. Probabilities are computed again from log_sum_exp, which has the
// sinks in it.
template <class T>
void attention_backward(const AttentionBackwardArrays<T>& arrays, const AttentionShape& shape,
                        const std::vector<AttentionSpan>& spans);

// Forward attention over one span for few queries: packs nothing, so that its cost is one pass over
// keys and values per query of a group. Its sums are taken in another order than
// attention_forward's.
template <class T>
void attention_decode(const AttentionDecodeArrays<T>& arrays, const AttentionShape& shape,
                      const AttentionSpan& span);

}  // namespace switchyard
