#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "config/config.h"

namespace switchyard {

// Of the section parallel, whatever the number of ranks.
std::vector<std::string> layout_rules(const Config& config);

}  // namespace switchyard
