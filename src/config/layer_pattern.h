#pragma once

#include <string>
#include <vector>

#include "config/config.h"

namespace switchyard {

enum class MixerKind { kAttention, kMamba1, kMamba2, kDeltaNet };
enum class FeedForward { kNone, kDense, kMoe };

// What a decoder layer is made of: mixers, which move values along time and stand side by side, and
// what works on each token alone after them. At least one of the two is there.
struct LayerKinds {
  std::vector<MixerKind> mixers;
  FeedForward feed_forward = FeedForward::kNone;

  bool has(MixerKind kind) const;
};

// Of each layer of the model: model.layer_pattern, or where that is empty attention and an MLP or
// experts (moe.layers, moe.first_dense_layers). [num_layers] Throws ConfigError when the pattern or
// moe.layers is malformed.
std::vector<LayerKinds> layer_kinds(const Config& config);

// What is wrong with model.layer_pattern, in one line; "" when all is well: for rules.
std::string wrong_layer_pattern(const Config& config);

// Layers as a pattern has them, each a word: "*E *- ME".
std::string layer_pattern_of(const std::vector<LayerKinds>& layers);

}  // namespace switchyard
