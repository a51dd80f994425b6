#pragma once

#include "config/config.h"
#include "nn/forward_context.h"
#include "nn/linear.h"

namespace switchyard {

// Keys and values of the tokens so far, of one sequence and one layer, for generation.
struct KeyValueCache {
  at::Tensor keys;     // [capacity, kv_heads/tp, head_dim]; undefined before the first token
  at::Tensor values;   // the same
  int64_t length = 0;  // tokens held

  // Appends, growing the capacity as needed, and returns all keys and values so far.
  std::pair<at::Tensor, at::Tensor> append(const at::Tensor& new_keys,
                                           const at::Tensor& new_values);
};

// Causal self-attention with grouped key/value heads (GQA, Ainslie et al. 2023, arXiv:2305.13245)
// and rotary positions, heads cut over tp. Parameters: q [heads, head_dim, hidden], k and v
// [kv_heads, head_dim, hidden], o [hidden, heads, head_dim].
class Attention {
 public:
  Attention(const Scope& scope, const ModelConfig& model);

  // hidden [tokens, hidden] -> the same, placed as the input. With `cache` the tokens follow those
  // in the cache (one sequence, no gradient). Collective over tp.
  Placed forward(const Placed& hidden, const ForwardContext& context, KeyValueCache* cache) const;

 private:
  int64_t num_heads_;     // on this rank
  int64_t num_kv_heads_;  // on this rank
  int64_t head_dim_;
  ColumnLinear qkv_;
  RowLinear output_;
};

}  // namespace switchyard
