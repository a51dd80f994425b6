#pragma once

namespace switchyard {

// What turns a router's logits into scores of experts.
enum class ScoreFunction {
  kSoftmax,
  kSigmoid,
  kSqrtSoftplus,  // sqrt(log(1 + exp(x)))
};

}  // namespace switchyard
