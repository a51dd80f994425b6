#pragma once

#include "config/config.h"
#include "nn/parameters.h"
#include "ops/rms_norm.h"

namespace switchyard {

inline NormWeight norm_weight(const ModelConfig& model) {
  return model.norm_plus_one ? NormWeight::kPlusOne : NormWeight::kPlain;
}
// What a norm that changes nothing but the length begins with.
inline Init norm_init(const ModelConfig& model) {
  return model.norm_plus_one ? Init::zeros() : Init::ones();
}

// The norm of the residual stream, by model.norm; statistics in fp32 (fp64 for fp64). Not
// collective.
//   rms    x / rms times a learned scale (Zhang and Sennrich 2019, arXiv:1910.07467), as
//          transformers' LlamaRMSNorm, or with model.norm_plus_one as GemmaRMSNorm
//   layer  (x - mean) / deviation times a scale plus a bias (Ba et al. 2016, arXiv:1607.06450),
//          with model.norm_plus_one as NemotronLayerNorm1P
class Norm {
 public:
  // With sequence parallelism each tp rank normalises its own tokens, and the weight's gradient is
  // the sum over them.
  Norm(const Scope& scope, const ModelConfig& model, bool is_sequence_parallel);

  Placed forward(const Placed& input) const;  // [tokens, hidden]

 private:
  at::Tensor over_deviation(const at::Tensor& input) const;

  NormWeight weight_kind_;
  at::Tensor weight_;  // [hidden]
  at::Tensor bias_;    // [hidden]; undefined for rms
  double epsilon_;
};

}  // namespace switchyard
