#pragma once

#include <vector>

#include "config/config.h"

namespace switchyard {

// For each layer of the model whether it has experts: moe.layers, or all when that is empty, from
// moe.first_dense_layers on. [num_layers] Throws ConfigError when moe.layers is malformed.
std::vector<bool> moe_layers(const Config& config);

}  // namespace switchyard
