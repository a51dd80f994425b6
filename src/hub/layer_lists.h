#pragma once

#include <cstdint>
#include <vector>

#include "config/config.h"

namespace switchyard {

// The layers of a model one by one, as Hugging Face's configurations list them.

std::vector<bool> moe_layers_of(const Config& config);  // whether layer i is an MoE layer
std::vector<int64_t> windows_of(const Config& config);  // tokens that layer i attends to; 0: all

// A layer set of these layers, as settings have it: {"0-3", "7"}; all of them is the empty set.
std::vector<std::string> layer_set_of(const std::vector<bool>& layers);

}  // namespace switchyard
