#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "config/layer_overrides.h"
#include "config/rules.h"

namespace switchyard {

// Each rule of experts that the settings of some layer break, for the first such layer. What the
// whole section breaks is left to expert_rules().
std::vector<std::string> override_rules(const Config& config, ConfigUse use);

// The same settings with the section moe as it is for one layer.
Config config_of_layer(const Config& config, int64_t layer);
// Layers that a text of moe.overrides names and that have experts.
std::vector<int64_t> layers_with_experts(const Config& config, const LayerOverride& text);
// Whether moe.layers and moe.overrides can be read at all.
bool can_read_layers(const Config& config);

}  // namespace switchyard
