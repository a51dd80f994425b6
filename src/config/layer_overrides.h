#pragma once

#include <string>
#include <vector>

#include "config/config.h"

namespace switchyard {

// moe.overrides: texts such as `4-7, 9: num_experts=16 ffn_hidden_size=64`, that is a layer set, a
// colon, and settings of the section moe as they are for these layers. Every setting of the section
// may differ but layers, first_dense_layers, overrides and dispatcher. Where texts overlap, later
// ones win.

// What is wrong with the texts, one line for each that is: for rules.
std::vector<std::string> wrong_overrides(const Config& config);

// The section moe as it is for one layer. Throws ConfigError when a text is malformed.
MoeConfig moe_of_layer(const Config& config, int64_t layer);

// One text, taken apart.
struct LayerOverride {
  std::string text;
  std::vector<bool> layers;         // [num_layers]
  std::vector<std::string> names;   // of the settings: "moe.num_experts"
  std::vector<std::string> values;  // one per name, as written
};
// All of them. Throws ConfigError when a text is malformed.
std::vector<LayerOverride> layer_overrides(const Config& config);

}  // namespace switchyard
