#pragma once

#include <cstdint>

#include "config/config.h"

namespace switchyard {

struct ParameterCount {
  int64_t total = 0;       // without multi-token prediction, which generation leaves out
  int64_t active = 0;      // that one token meets: of routed experts, its top_k
  int64_t prediction = 0;  // modules of multi-token prediction
};

// Of the model that the settings describe, in any layout; model.vocab_size must be known. Takes no
// memory for values. Not collective.
ParameterCount count_parameters(const Config& config);

}  // namespace switchyard
