#pragma once

#include <string>
#include <vector>

#include "config/config.h"

namespace switchyard {

// Of the sections attention and rope and the heads that ranks share; none where no layer has
// attention.
std::vector<std::string> attention_rules(const Config& config);

}  // namespace switchyard
