#include "model/layer_spec.h"

#include "config/layer_set.h"

namespace switchyard {

std::vector<LayerSpec> describe_layers(const Config& config) {
  const AttentionConfig& attention = config.attention;
  const int64_t num_layers = config.model.num_layers;
  const std::vector<bool> has_window =
      attention.window_layers.empty()
          ? std::vector<bool>(static_cast<size_t>(num_layers), true)
          : layer_set("attention.window_layers", attention.window_layers, num_layers);
  std::vector<LayerSpec> layers;
  for (int64_t i = 0; i < num_layers; ++i) {
    const bool is_moe = config.moe.num_experts > 0 && i >= config.moe.first_dense_layers;
    layers.push_back({is_moe ? FeedForward::kMoe : FeedForward::kDense,
                      has_window[static_cast<size_t>(i)] ? attention.window : 0});
  }
  return layers;
}

}  // namespace switchyard
