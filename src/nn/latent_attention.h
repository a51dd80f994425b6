#pragma once

#include <memory>

#include "config/config.h"
#include "nn/attention_core.h"
#include "nn/linear.h"
#include "nn/mixer.h"

namespace switchyard {

// Multi-head latent attention (MLA, DeepSeek-V2, arXiv:2405.04434): keys and values of all heads
// are made from one narrow latent per token, and one rotated key serves all heads. As transformers'
// DeepseekV2Attention and DeepseekV3Attention. For a token with hidden state h:
//
//   [latent; k_rope] = kv_down h          latent = norm(latent)
//   [k_nope; v] of each head = kv_up latent
//   [q_nope; q_rope] of each head = q h, or q_up norm(q_down h) with mla.q_lora_rank
//   score = scale (q_nope . k_nope + rotated q_rope . rotated k_rope)
//
// Heads are cut over tp. Latents and the rotated key are equal on all its ranks, which each make
// them, and each rank's heads give them a part of their gradient.
//
// Parameters: q [heads, qk, hidden], or q_down [q_lora_rank, hidden], q_norm [q_lora_rank] and q_up
// [heads, qk, q_lora_rank]; kv_down [kv_lora_rank + qk_rope, hidden], kv_norm [kv_lora_rank], kv_up
// [heads, qk_nope + v_dim, kv_lora_rank], o [hidden, heads, v_dim]; qk is qk_nope + qk_rope.
class LatentAttention : public Mixer {
 public:
  // `window`: tokens that a token of this layer sees, itself included; 0 for all before it.
  LatentAttention(const Scope& scope, const Config& config, int64_t window);

  // A cache holds as keys the latent and the rotated key of each token
  // [tokens, 1, kv_lora_rank + qk_rope], and as values nothing.
  Placed forward(const Placed& hidden, const ForwardContext& context,
                 const MixerCaches* caches) const override;
  std::unique_ptr<MixerCache> new_cache() const override;

 private:
  struct Projections {
    at::Tensor q_nope;  // [tokens, heads/tp, qk_nope]
    at::Tensor q_rope;  // [tokens, heads/tp, qk_rope], rotated
    at::Tensor latent;  // [tokens, kv_lora_rank]
    at::Tensor k_rope;  // [tokens, 1, qk_rope], rotated
  };

  Projections project(const Placed& hidden, const ForwardContext& context) const;
  at::Tensor attend(const Projections& projections, const ForwardContext& context) const;
  at::Tensor attend_to_caches(const Projections& projections, const ForwardContext& context,
                              const MixerCaches& caches) const;

  MlaConfig mla_;
  int64_t num_heads_;  // on this rank
  bool is_interleaved_;
  AttentionOptions options_;
  ColumnLinear down_;                   // q or q_down, then kv_down
  at::Tensor q_norm_;                   // [q_lora_rank]; undefined without
  at::Tensor kv_norm_;                  // [kv_lora_rank]
  std::unique_ptr<ColumnLinear> q_up_;  // null without q_lora_rank
  ColumnLinear kv_up_;
  RowLinear output_;
  AttentionCore core_;
};

// What multiplies the scores: 1 / sqrt(qk), and with scaled rotary positions the square of yarn's
// magnitude for rope.mscale_all_dim.
double latent_attention_scale(const Config& config);

}  // namespace switchyard
