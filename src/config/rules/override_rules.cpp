#include "config/rules/override_rules.h"

#include <algorithm>

#include <fmt/format.h>

#include "config/moe_layers.h"
#include "config/rules/expert_rules.h"
#include "config/rules/questions.h"

namespace switchyard {

Config config_of_layer(const Config& config, int64_t layer) {
  Config of_layer = config;
  of_layer.moe = moe_of_layer(config, layer);
  return of_layer;
}

std::vector<int64_t> layers_with_experts(const Config& config, const LayerOverride& text) {
  std::vector<int64_t> layers;
  const std::vector<bool> is_moe = moe_layers(config);
  for (size_t i = 0; i < is_moe.size(); ++i) {
    if (is_moe[i] && text.layers[i]) {
      layers.push_back(static_cast<int64_t>(i));
    }
  }
  return layers;
}

bool can_read_layers(const Config& config) {
  return has_experts(config) && layers_are_listed(config).empty() &&
         wrong_overrides(config).empty();
}

std::vector<std::string> override_rules(const Config& config, ConfigUse use) {
  if (!can_read_layers(config)) {
    return has_experts(config) ? wrong_overrides(config) : std::vector<std::string>{};
  }
  std::vector<std::string> lines;
  std::vector<std::string> seen = expert_rules(config, use);
  for (const LayerOverride& text : layer_overrides(config)) {
    for (const int64_t layer : layers_with_experts(config, text)) {
      for (const std::string& line : expert_rules(config_of_layer(config, layer), use)) {
        if (std::find(seen.begin(), seen.end(), line) == seen.end()) {
          seen.push_back(line);
          lines.push_back(fmt::format("moe.overrides, layer {}: {}", layer, line));
        }
      }
    }
  }
  return lines;
}

}  // namespace switchyard
