#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "config/rules.h"

namespace switchyard {

// Of the sections train and optimizer.
std::vector<std::string> training_rules(const Config& config, ConfigUse use);

}  // namespace switchyard
