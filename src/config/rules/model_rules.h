#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "config/config.h"

namespace switchyard {

// Of the section model and the list of layers.
std::vector<std::string> model_rules(const Config& config);

}  // namespace switchyard
