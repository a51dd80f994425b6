#include "config/moe_layers.h"

#include "config/layer_pattern.h"

namespace switchyard {

std::vector<bool> moe_layers(const Config& config) {
  std::vector<bool> layers;
  for (const LayerKinds& layer : layer_kinds(config)) {
    layers.push_back(layer.feed_forward == FeedForward::kMoe);
  }
  return layers;
}

}  // namespace switchyard
