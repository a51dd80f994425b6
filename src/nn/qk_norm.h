#pragma once

#include <string>

#include "config/config.h"
#include "nn/parameters.h"
#include "ops/rms_norm.h"
#include "parallel/collectives.h"

namespace switchyard {

// Which heads a rank of tp has: its part of them, or all.
enum class HeadsHere { kOwn, kAll };

// RMSNorm of queries or of keys, before they are rotated, with statistics in fp32 (fp64 for fp64):
// By model.norm_plus_one, as in nn/norm.h:
//   head  over each head alone; the weight [head_dim] is shared by all heads (transformers'
//         Qwen3Attention)
//   full  over all heads of a token together, those on other tp ranks too; weight [heads, head_dim]
//         placed like the projection (OlmoeAttention)
class QkNorm {
 public:
  // `name` is the parameter's name within the scope, num_heads counts over all tp ranks.
  QkNorm(const Scope& scope, const Config& config, const std::string& name, int64_t num_heads,
         HeadsHere heads_here, const Site& site);

  // heads [tokens, heads here, head_dim] -> the same shape. Collective over tp when the norm is
  // full and each rank has its own heads.
  at::Tensor forward(const at::Tensor& heads) const;

 private:
  at::Tensor over_all_heads(const at::Tensor& heads) const;

  const Group& tensor_group_;
  Site site_;
  QkNormKind kind_;
  HeadsHere heads_here_;
  int64_t num_features_;  // of all heads
  double epsilon_;
  NormWeight weight_kind_;
  at::Tensor weight_;  // [head_dim], or [heads here * head_dim]; undefined for none
};

}  // namespace switchyard
