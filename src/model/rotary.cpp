#include "model/rotary.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include <ATen/ATen.h>

namespace switchyard {
namespace {

// numerator / tensor as Python's operator computes it: with two roundings.
at::Tensor over(double numerator, const at::Tensor& tensor) {
  return tensor.reciprocal() * numerator;
}

// [rotary_dim / 2]: 0, 2, 4, ... over rotary_dim.
at::Tensor exponents(int64_t dim, at::ScalarType type) {
  return at::arange(0, dim, 2, type) / dim;
}

at::Tensor plain(double base, int64_t dim, at::ScalarType type) {
  return at::pow(base, exponents(dim, type)).reciprocal();
}

// NTK-aware scaling: the base grows with the sequence, so that the slowest frequency is stretched
// by the factor and the fastest hardly.
at::Tensor dynamic(const Config& config, int64_t longest, at::ScalarType type) {
  const RopeConfig& rope = config.rope;
  const int64_t dim = config.rotary_dim();
  if (longest <= config.model.max_position) {
    return plain(rope.base, dim, type);
  }
  const double exponent = static_cast<double>(dim) / static_cast<double>(dim - 2);
  const at::Tensor stretch =
      at::scalar_tensor(longest, type) * rope.factor / config.model.max_position -
      (rope.factor - 1);
  const at::Tensor base = at::pow(stretch, exponent) * rope.base;
  return at::pow(base, exponents(dim, type)).reciprocal();
}

at::Tensor llama3(const RopeConfig& rope, int64_t dim, at::ScalarType type) {
  const at::Tensor inverse = plain(rope.base, dim, type);
  const auto original = static_cast<double>(rope.original_max_position);
  const double longest_kept = original / rope.high_freq_factor;
  const double shortest_scaled = original / rope.low_freq_factor;
  const at::Tensor wavelength = over(2 * std::numbers::pi, inverse);
  const at::Tensor scaled = at::where(wavelength > shortest_scaled, inverse / rope.factor, inverse);
  const at::Tensor smooth = (over(original, wavelength) - rope.low_freq_factor) /
                            (rope.high_freq_factor - rope.low_freq_factor);
  const at::Tensor between = (1 - smooth) * scaled / rope.factor + smooth * scaled;
  const at::Tensor is_between =
      (wavelength < longest_kept).logical_or(wavelength > shortest_scaled).logical_not();
  return at::where(is_between, between, scaled);
}

// The index of the frequency that makes `turns` turns within the original length.
double index_of_turns(const RopeConfig& rope, int64_t dim, double turns) {
  const auto original = static_cast<double>(rope.original_max_position);
  return static_cast<double>(dim) * std::log(original / (turns * 2 * std::numbers::pi)) /
         (2 * std::log(rope.base));
}

at::Tensor yarn(const RopeConfig& rope, int64_t dim, at::ScalarType type) {
  double low = index_of_turns(rope, dim, rope.beta_fast);
  double high = index_of_turns(rope, dim, rope.beta_slow);
  if (rope.truncate) {
    low = std::floor(low);
    high = std::ceil(high);
  }
  low = std::max(low, 0.0);
  high = std::min(high, static_cast<double>(dim - 1));
  if (low == high) {
    constexpr double kShortestRamp = 0.001;
    high += kShortestRamp;
  }
  const at::Tensor ramp = ((at::arange(dim / 2, type) - low) / (high - low)).clamp(0, 1);
  const at::Tensor kept = 1 - ramp;
  const at::Tensor wave = at::pow(rope.base, exponents(dim, type));
  return (wave * rope.factor).reciprocal() * (1 - kept) + wave.reciprocal() * kept;
}

double yarn_attention_factor(const RopeConfig& rope) {
  if (rope.attention_factor > 0) {
    return rope.attention_factor;
  }
  const auto magnitude = [&](double weight) {
    return rope.factor <= 1 ? 1.0 : 0.1 * weight * std::log(rope.factor) + 1.0;
  };
  const bool has_weights = rope.mscale > 0 && rope.mscale_all_dim > 0;
  return has_weights ? magnitude(rope.mscale) / magnitude(rope.mscale_all_dim) : magnitude(1);
}

}  // namespace

RotaryFrequencies rotary_frequencies(const Config& config, int64_t longest, at::ScalarType dtype) {
  const RopeConfig& rope = config.rope;
  const int64_t dim = config.rotary_dim();
  if (dim == 0) {
    return {at::empty({0}, dtype), 1};
  }
  const at::ScalarType type = dtype == at::kDouble ? at::kDouble : at::kFloat;
  switch (rope.type) {
    case RopeType::kDefault:
      return {plain(rope.base, dim, type), 1};
    case RopeType::kLinear:
      return {plain(rope.base, dim, type) / rope.factor, 1};
    case RopeType::kDynamic:
      return {dynamic(config, longest, type), 1};
    case RopeType::kLlama3:
      return {llama3(rope, dim, type), 1};
    case RopeType::kYarn:
      return {yarn(rope, dim, type), yarn_attention_factor(rope)};
  }
  return {};
}

Config with_window_rope(Config config) {
  const RopeConfig& all = config.rope;
  config.rope = {.base = all.window_base,
                 .partial_factor = all.partial_factor,
                 .interleaved = all.interleaved};
  return config;
}

int64_t Rotary::stretched_length(int64_t longest) const {
  const bool is_stretched =
      config_.rope.type == RopeType::kDynamic && longest > config_.model.max_position;
  return is_stretched ? longest : 0;
}

const RotaryTable& Rotary::table(int64_t longest) {
  const int64_t stretched = stretched_length(longest);
  const bool serves =
      table_.cosine.defined() && table_.max_position() >= longest && stretched_length_ == stretched;
  if (!serves) {
    // Twice as far, so that generating token by token rarely makes a table.
    const int64_t reach = stretched > 0 ? longest : 2 * longest;
    const RotaryFrequencies frequencies = rotary_frequencies(config_, longest, dtype_);
    table_ = make_rotary_table(reach, frequencies.inverse, dtype_, frequencies.attention_factor);
    stretched_length_ = stretched;
  }
  return table_;
}

}  // namespace switchyard
