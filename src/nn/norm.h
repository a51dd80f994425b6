#pragma once

#include "config/config.h"
#include "nn/parameters.h"

namespace switchyard {

// Root mean square norm with a learned scale (Zhang and Sennrich 2019, arXiv:1910.07467), as
// transformers' LlamaRMSNorm: statistics in fp32 (fp64 for fp64). Not collective.
class Norm {
 public:
  // With sequence parallelism each tp rank normalises its own tokens, and the weight's gradient is
  // the sum over them.
  Norm(const Scope& scope, const ModelConfig& model, bool is_sequence_parallel);

  Placed forward(const Placed& input) const;  // [tokens, hidden]

 private:
  at::Tensor weight_;  // [hidden]
  double epsilon_;
};

}  // namespace switchyard
