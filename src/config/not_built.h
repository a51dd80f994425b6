#pragma once

#include <string>
#include <vector>

#include "config/config.h"

namespace switchyard {

// One line per setting whose value asks for what the program cannot do yet.
std::vector<std::string> settings_not_built(const Config& config);

}  // namespace switchyard
