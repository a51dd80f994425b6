#pragma once

#include "config/config.h"
#include "ops/rope.h"

namespace switchyard {

struct RotaryFrequencies {
  at::Tensor inverse;           // [rotary_dim / 2] fp32, or fp64 for fp64
  double attention_factor = 1;  // multiplies cosines and sines
};

// The frequencies that the settings in `rope` give, with the formulas, and in fp32 the roundings,
// of transformers 5.24, modeling_rope_utils.py. docs/attention.md writes them out. `longest` is the
// number of tokens of the longest sequence of the batch; only rope.type dynamic looks at it.
RotaryFrequencies rotary_frequencies(const Config& config, int64_t longest, at::ScalarType dtype);

// The settings of the layers with a window, where rope.window_base gives them frequencies of their
// own.
Config with_window_rope(Config config);

// The rotary table of a model, kept from one forward pass to the next.
class Rotary {
 public:
  // `dtype` is that of the tensors to rotate.
  Rotary(const Config& config, at::ScalarType dtype) : config_(config), dtype_(dtype) {}

  // A table for a batch whose longest sequence has `longest` tokens: it reaches at least that far.
  const RotaryTable& table(int64_t longest);

 private:
  // The length that the frequencies depend on; 0 when they depend on none.
  int64_t stretched_length(int64_t longest) const;

  Config config_;
  at::ScalarType dtype_;
  RotaryTable table_;
  int64_t stretched_length_ = 0;
};

}  // namespace switchyard
