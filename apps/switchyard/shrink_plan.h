#pragma once

#include "selfcheck/shrink.h"

namespace switchyard {

// The settings that were made small, one line each.
void print_changes(const ShrunkConfig& shrunk);

}  // namespace switchyard
