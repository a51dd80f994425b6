#pragma once

#include "config/config.h"
#include "nn/linear.h"
#include "nn/scan_mixer.h"

namespace switchyard {

// Gated DeltaNet (Yang et al. 2024, arXiv:2412.06464), as transformers' Qwen3-Next has it, key
// heads and the value heads that read them cut over tp. In order: projection to q, k, v, z, b and
// a; causal convolution and SiLU of q, k and v; the gated delta rule with beta = sigmoid(b) and log
// decay = -exp(a_log) softplus(a + dt_bias); RMSNorm of each value head, times silu(z); output
// projection.
//
// With r = value heads / key heads, parameters: q and k [key_heads, key_dim, hidden], v and z
// [key_heads, r, value_dim, hidden], b and a [key_heads, r, hidden]; conv_q and conv_k
// [key_heads, key_dim, conv_width], conv_v [key_heads, r, value_dim, conv_width]; a_log and dt_bias
// [key_heads, r], in the master dtype; norm [value_dim], which all heads share; output
// [hidden, key_heads, r, value_dim].
class GatedDeltaNet : public ScanMixer {
 public:
  GatedDeltaNet(const Scope& scope, const Config& config);

  Placed forward(const Placed& hidden, const ForwardContext& context,
                 const MixerCaches* caches) const override;

 private:
  at::Tensor channels_of(const HeadPart& part, const at::Tensor& all, int64_t dim) const override;
  at::Tensor steps_of(const HeadPart& part, const at::Tensor& all) const override;
  at::Tensor scan(const HeadPart& part, const at::Tensor& channels, const at::Tensor& steps,
                  const SequenceTable& table, ScanCache* cache) const override;

  DeltaNetConfig sizes_;
  double norm_epsilon_;
  int64_t key_heads_;    // on this rank
  int64_t value_heads_;  // on this rank
  ColumnLinear input_;
  at::Tensor conv_weight_;  // [channels here, conv_width]
  at::Tensor a_log_;        // [value_heads/tp]
  at::Tensor dt_bias_;      // [value_heads/tp]
  at::Tensor norm_weight_;  // [value_dim]
  RowLinear output_;
};

}  // namespace switchyard
