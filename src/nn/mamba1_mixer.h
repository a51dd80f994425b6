#pragma once

#include <memory>

#include "config/config.h"
#include "nn/linear.h"
#include "nn/mixer.h"
#include "nn/scan_mixer.h"

namespace switchyard {

// The Mamba-1 layer (Gu and Dao 2023, arXiv:2312.00752), channels cut over tp. In order: projection
// to x and z; causal convolution and SiLU of x; projection of x to a low-rank time step, B and C;
// scan with dt = softplus(low-rank x dt_weight + dt_bias) and a = -exp(a_log); product with
// silu(z); output projection.
//
// Parameters: x and z [inner, hidden], x_input_bias and z_input_bias [inner] where asked for; conv
// [inner, conv_width], conv_bias [inner]; select [dt_rank + 2 state_size, inner], whose rows are
// the low-rank time step, B and C; dt_weight [inner, dt_rank]; dt_bias [inner], a_log
// [inner, state_size] and d [inner], in the master dtype; output [hidden, inner], output_bias
// [hidden].
//
// Where the ranks of cp divide the row, they take whole rows of each other's channels twice: B and
// C, in between, are a sum over all channels.
class Mamba1Mixer : public Mixer {
 public:
  Mamba1Mixer(const Scope& scope, const Config& config);

  Placed forward(const Placed& hidden, const ForwardContext& context,
                 const MixerCaches* caches) const override;
  std::unique_ptr<MixerCache> new_cache() const override;

 private:
  // What a token brings to the scan.
  struct ScannedTokens {
    at::Tensor x;   // [tokens, channels]
    at::Tensor dt;  // [tokens, channels]
    at::Tensor b;   // [tokens, state_size]
    at::Tensor c;   // [tokens, state_size]
  };
  ScannedTokens select(const at::Tensor& mixed) const;
  // Of the channels [first, first + x.size(1)) of this rank.
  at::Tensor scan(const ScannedTokens& tokens, int64_t first, const SequenceTable& table,
                  ScanCache* cache) const;
  at::Tensor convolve_shared_row(const at::Tensor& x, const SequenceTable& table) const;
  at::Tensor scan_shared_row(const ScannedTokens& tokens, const SequenceTable& table) const;
  at::Tensor mix_after_caches(const at::Tensor& x, const SequenceTable& table,
                              const MixerCaches& caches) const;
  at::Tensor mix(const at::Tensor& x, const SequenceTable& table) const;

  const Group& tensor_group_;
  const Group& context_group_;
  int64_t channels_;  // on this rank
  int64_t state_size_;
  int64_t dt_rank_;
  ColumnLinear input_;
  at::Tensor conv_weight_;  // [channels, conv_width]
  at::Tensor conv_bias_;    // [channels]; undefined without
  RowLinear select_;
  at::Tensor dt_weight_;  // [channels, dt_rank]
  at::Tensor dt_bias_;    // [channels]
  at::Tensor a_log_;      // [channels, state_size]
  at::Tensor d_;          // [channels]
  RowLinear output_;
};

}  // namespace switchyard
