#include "model/layer_spec.h"

#include "config/layer_overrides.h"
#include "config/layer_set.h"

namespace switchyard {

std::vector<LayerSpec> describe_layers(const Config& config) {
  const AttentionConfig& attention = config.attention;
  const int64_t num_layers = config.model.num_layers;
  const std::vector<bool> has_window =
      attention.window_layers.empty()
          ? std::vector<bool>(static_cast<size_t>(num_layers), true)
          : layer_set("attention.window_layers", attention.window_layers, num_layers);
  const std::vector<LayerKinds> kinds = layer_kinds(config);
  std::vector<LayerSpec> layers;
  for (size_t i = 0; i < kinds.size(); ++i) {
    const bool sees_window = has_window[i] && kinds[i].has(MixerKind::kAttention);
    layers.push_back({kinds[i], sees_window ? attention.window : 0,
                      moe_of_layer(config, static_cast<int64_t>(i))});
  }
  return layers;
}

}  // namespace switchyard
