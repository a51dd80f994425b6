#pragma once

#include <vector>

#include "config/config.h"

namespace switchyard {

enum class FeedForward { kDense, kMoe };

// What one decoder layer is made of. A model is a list of these, so that a pattern is data, not
// code.
struct LayerSpec {
  FeedForward feed_forward = FeedForward::kDense;
};

// The layers of the model that the settings describe, first to last.
std::vector<LayerSpec> describe_layers(const ModelConfig& model, const MoeConfig& moe);

}  // namespace switchyard
