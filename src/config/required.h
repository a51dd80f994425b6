#pragma once

#include <string>
#include <vector>

#include "config/origins.h"
#include "config/rules.h"
#include "config/settings.h"

namespace switchyard {

// Settings without a default that `use` needs and nobody gave.
std::vector<const Setting*> missing_settings(const Origins& origins, ConfigUse use);

// `model.num_layers must be given: decoder layers`
std::string missing_text(const Setting& setting);

}  // namespace switchyard
