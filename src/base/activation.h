#pragma once

#include <cstdint>

namespace switchyard {

// The functions that an MLP may have between its two products. sigmoid(x) = 1 / (1 + exp(-x)).
enum class Activation {
  kSilu,         // x sigmoid(x)
  kGelu,         // x (1 + erf(x / sqrt(2))) / 2
  kGeluTanh,     // x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))) / 2
  kRelu,         // max(x, 0)
  kReluSquared,  // max(x, 0)^2
  kQuickGelu,    // x sigmoid(1.702 x)
};
constexpr int kNumActivations = 6;

// What an MLP makes of its first product: activation(gate) x up, or without a gate activation(up).
// With limits, which need a gate: activation(min(gate, clamp)) x (clamp(up, -clamp, clamp) +
// offset) (GPT-OSS, transformers' GptOssExperts).
struct MlpFunction {
  Activation activation = Activation::kSilu;
  bool is_gated = true;
  double clamp = 0;   // 0: none
  double offset = 0;  // added to up

  bool has_limits() const { return clamp != 0 || offset != 0; }

  int64_t num_inputs() const { return is_gated ? 2 : 1; }  // gate and up, or up
};

}  // namespace switchyard
