#pragma once

#include <cstdint>

#include "config/config.h"

namespace switchyard {

struct ParameterCount {
  int64_t total = 0;
  int64_t active = 0;  // that one token meets: of routed experts, its top_k
};

// Of the model that the settings describe, in any layout; model.vocab_size must be known. Takes no
// memory for values. Not collective.
ParameterCount count_parameters(const Config& config);

}  // namespace switchyard
