#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "config/rules.h"

namespace switchyard {

// Of the section moe and its layout, also as it is for one layer.
std::vector<std::string> expert_rules(const Config& config, ConfigUse use);

}  // namespace switchyard
