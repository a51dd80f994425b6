#include "config/moe_layers.h"

#include "config/layer_set.h"

namespace switchyard {

std::vector<bool> moe_layers(const Config& config) {
  const auto num_layers = static_cast<size_t>(config.model.num_layers);
  if (config.moe.num_experts == 0) {
    return std::vector<bool>(num_layers, false);
  }
  std::vector<bool> layers = config.moe.layers.empty() ? std::vector<bool>(num_layers, true)
                                                       : layer_set("moe.layers", config.moe.layers,
                                                                   config.model.num_layers);
  for (size_t i = 0; i < num_layers; ++i) {
    layers[i] = layers[i] && static_cast<int64_t>(i) >= config.moe.first_dense_layers;
  }
  return layers;
}

}  // namespace switchyard
