#pragma once

#include <vector>

#include "config/config.h"

namespace switchyard {

enum class FeedForward { kDense, kMoe };

// What one decoder layer is made of. A model is a list of these, so that a pattern is data, not
// code.
struct LayerSpec {
  FeedForward feed_forward = FeedForward::kDense;
  int64_t attention_window = 0;  // tokens that a token sees, itself included; 0: all before it
  MoeConfig moe;                 // of this layer; without a meaning in a dense one
};

// The layers of the model that the settings describe, first to last.
std::vector<LayerSpec> describe_layers(const Config& config);

}  // namespace switchyard
