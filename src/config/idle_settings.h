#pragma once

#include <set>
#include <string>

#include "config/config.h"

namespace switchyard {

// Names of the settings whose value means nothing beside what the others say: rope.factor where
// rope.type is default, or the width of dense layers where no layer is dense.
std::set<std::string> names_of_idle_settings(const Config& config);

}  // namespace switchyard
