#include "hub/layer_lists.h"

#include <algorithm>

#include <fmt/format.h>

#include "model/layer_spec.h"

namespace switchyard {

std::vector<bool> moe_layers_of(const Config& config) {
  std::vector<bool> layers;
  for (const LayerSpec& layer : describe_layers(config)) {
    layers.push_back(layer.has_experts());
  }
  return layers;
}

std::vector<int64_t> windows_of(const Config& config) {
  std::vector<int64_t> windows;
  for (const LayerSpec& layer : describe_layers(config)) {
    windows.push_back(layer.attention_window);
  }
  return windows;
}

std::vector<std::string> layer_set_of(const std::vector<bool>& layers) {
  std::vector<std::string> texts;
  if (std::all_of(layers.begin(), layers.end(), [](bool is_in) { return is_in; })) {
    return texts;
  }
  for (size_t first = 0; first < layers.size(); ++first) {
    if (!layers[first]) {
      continue;
    }
    size_t last = first;
    while (last + 1 < layers.size() && layers[last + 1]) {
      ++last;
    }
    texts.push_back(first == last ? std::to_string(first) : fmt::format("{}-{}", first, last));
    first = last;
  }
  return texts;
}

}  // namespace switchyard
