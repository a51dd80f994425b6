#pragma once

#include <string>
#include <vector>

#include "config/config.h"

namespace switchyard {

// Layers that scan along time: Mamba-1 (S), Mamba-2 (M) and gated delta net (G).
std::vector<std::string> scan_rules(const Config& config);

}  // namespace switchyard
