#pragma once

#include <vector>

#include "config/config.h"

namespace switchyard {

// For each layer of the model whether it has experts, as layer_kinds() says. [num_layers]
std::vector<bool> moe_layers(const Config& config);

}  // namespace switchyard
