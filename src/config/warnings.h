#pragma once

#include <string>
#include <vector>

#include "config/config.h"
#include "config/origins.h"

namespace switchyard {

// What is allowed but hardly meant, one line each: settings that were given and do nothing in this
// run, a warm-up longer than the run. For settings that break no rule.
std::vector<std::string> warnings_about(const Config& config, const Origins& origins);

}  // namespace switchyard
