#pragma once

#include <memory>
#include <optional>

#include "config/config.h"
#include "nn/attention_core.h"
#include "nn/linear.h"
#include "nn/mixer.h"
#include "nn/qk_norm.h"

namespace switchyard {

// Causal self-attention with grouped key/value heads (GQA, Ainslie et al. 2023, arXiv:2305.13245)
// and rotary positions, heads cut over tp. In order: projections, norm of queries and keys,
// clipping, rotation, attention within the window, gate, output projection. Parameters: q
// [heads, head_dim, hidden], k and v [kv_heads, head_dim, hidden], o [hidden, heads, head_dim];
// where the settings ask for them q_bias [heads, head_dim], k_bias and v_bias
// [kv_heads, head_dim], o_bias [hidden], q_norm and k_norm (qk_norm.h), gate
// [heads, head_dim, hidden] and gate_bias [heads, head_dim], sinks [heads].
//
// Where tp has more ranks than there are key/value heads, every rank holds and computes all of
// them, and attends to the one that its queries share.
class Attention : public Mixer {
 public:
  // `window`: tokens that a token of this layer sees, itself included; 0 for all before it.
  Attention(const Scope& scope, const Config& config, int64_t window);

  Placed forward(const Placed& hidden, const ForwardContext& context,
                 const MixerCaches* caches) const override;
  std::unique_ptr<MixerCache> new_cache() const override;

 private:
  // heads [tokens, heads, head_dim] -> the same shape, turned by their positions. Neighbours that
  // were turned together lie apart afterwards, which products of queries and keys do not see.
  at::Tensor rotated(const at::Tensor& heads, const ForwardContext& context) const;

  int64_t num_heads_;                    // on this rank
  int64_t num_kv_heads_;                 // on this rank
  std::optional<int64_t> used_kv_head_;  // where all are on this rank and it needs one
  int64_t head_dim_;
  int64_t rotary_dim_;
  bool rotates_neighbours_;
  bool has_window_rotary_;  // its own rotary positions, those of layers with a window
  bool has_gate_;
  AttentionOptions options_;
  double clip_;  // 0: off
  MultipliersConfig multipliers_;
  ColumnLinear qkv_;
  QkNorm query_norm_;
  QkNorm key_norm_;
  RowLinear output_;
  AttentionCore core_;
};

}  // namespace switchyard
