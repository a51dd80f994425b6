#pragma once

#include <vector>

#include "config/config.h"
#include "config/layer_pattern.h"

namespace switchyard {

// What one decoder layer is made of. A model is a list of these, so that a pattern is data, not
// code.
struct LayerSpec {
  LayerKinds kinds;
  int64_t attention_window = 0;  // tokens that a token sees, itself included; 0: all before it
  MoeConfig moe;                 // of this layer; without a meaning without experts

  bool has_experts() const { return kinds.feed_forward == FeedForward::kMoe; }
};

// The layers of the model that the settings describe, first to last.
std::vector<LayerSpec> describe_layers(const Config& config);

}  // namespace switchyard
