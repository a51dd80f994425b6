#pragma once

#include "config/config.h"
#include "nn/linear.h"
#include "nn/norm.h"

namespace switchyard {

// What a module of multi-token prediction has besides its decoder layer, the model's embedding and
// the model's head (DeepSeek-V3, arXiv:2412.19437, section 2.2). Module d, from 1 on, sees at token
// i what the model, or the module before, has made of it, and the token i + d; it foretells the
// token i + d + 1:
//
//   input of its layer = projection [norm(embedding of token i + d); norm(hidden of token i)]
//   hidden of module d = norm(output of its layer)
//
// As megatron-core's MultiTokenPredictionLayer and transformers' MtpLayer. Parameters:
// embedding_norm.weight, hidden_norm.weight and final_norm.weight [hidden], projection
// [hidden, 2, hidden], whose input features are cut over tp.
class PredictionModule {
 public:
  PredictionModule(const Scope& scope, const Config& config);

  // Both [tokens, hidden] and placed alike -> the same, placed alike. Collective over tp.
  Placed join(const Placed& embedded, const Placed& hidden) const;
  // Of the layer's output.
  Placed finish(const Placed& hidden) const { return final_norm_.forward(hidden); }

 private:
  at::Tensor features_here(const Placed& value) const;

  const Group& tensor_group_;
  Norm embedding_norm_;
  Norm hidden_norm_;
  RowLinear projection_;
  Norm final_norm_;
};

}  // namespace switchyard
