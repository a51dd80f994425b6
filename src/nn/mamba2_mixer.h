#pragma once

#include "config/config.h"
#include "nn/linear.h"
#include "nn/scan_mixer.h"

namespace switchyard {

// The Mamba-2 layer (Dao and Gu 2024, arXiv:2405.21060), heads cut over tp. In order: projection to
// z, x, B, C and dt; causal convolution and SiLU of x, B and C; scan with
// dt = clamp(softplus(dt + dt_bias)) and a = -exp(a_log); norm and gate by z; output projection.
//
// Parameters: z and x [heads, head_dim, hidden], b and c [groups, state_size, hidden], dt
// [heads, hidden]; conv_x [heads, head_dim, conv_width],
// conv_b and conv_c [groups, state_size, conv_width], each with its _bias; a_log, d and dt_bias
// [heads], in the master dtype; norm [heads, head_dim]; output [hidden, heads, head_dim],
// output_bias [hidden]. The biases of the projection are z_input_bias and so on.
//
// Where tp has more ranks than there are groups, every rank holds all groups and uses the one that
// its heads share. That leaves no rank a whole group to normalise: it needs mamba.norm none.
class Mamba2Mixer : public ScanMixer {
 public:
  Mamba2Mixer(const Scope& scope, const Config& config);

  Placed forward(const Placed& hidden, const ForwardContext& context,
                 const MixerCaches* caches) const override;

 private:
  // Some heads of this rank, and the groups that they read.
  struct HeadShare {
    int64_t first_head;
    int64_t heads;
    int64_t first_group;
    int64_t groups;
  };
  HeadShare share_of(const HeadPart& part) const;
  at::Tensor channels_of(const HeadPart& part, const at::Tensor& all, int64_t dim) const override;
  at::Tensor steps_of(const HeadPart& part, const at::Tensor& all) const override;
  at::Tensor scan(const HeadPart& part, const at::Tensor& channels, const at::Tensor& dt,
                  const SequenceTable& table, ScanCache* cache) const override;
  at::Tensor gated(const at::Tensor& scanned, const at::Tensor& z) const;

  MambaConfig mamba_;
  MultipliersConfig multipliers_;
  double norm_epsilon_;
  int64_t heads_;   // on this rank
  int64_t groups_;  // on this rank
  HeadShare used_;  // all heads of this rank, and the groups among those it holds
  ColumnLinear input_;
  at::Tensor conv_weight_;  // [channels here, conv_width]
  at::Tensor conv_bias_;    // [channels here]; undefined without
  at::Tensor a_log_;        // [heads/tp]
  at::Tensor d_;            // [heads/tp]
  at::Tensor dt_bias_;      // [heads/tp]
  at::Tensor norm_weight_;  // [heads/tp x head_dim]; undefined without
  RowLinear output_;
};

}  // namespace switchyard
