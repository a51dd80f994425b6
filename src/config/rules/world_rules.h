#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "config/config.h"

namespace switchyard {

// The rules that need the number of ranks.
std::vector<std::string> world_rules(const Config& config, int64_t num_ranks);

}  // namespace switchyard
