#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "config/config.h"

namespace switchyard {

// A layout for another number of ranks.
struct Replan {
  int64_t num_ranks = 0;
  std::vector<std::pair<std::string, int64_t>> changes;  // settings that differ: name, value
};

// The layout for `fewest` to `most` ranks that keeps all rules and the global batch. Each parallel
// size stays or becomes a divisor of itself. As few sizes as possible change, since a model that is
// divided less needs more memory on each rank; then the most ranks are taken, then the largest
// sizes. Nothing when no layout fits. Pure.
std::optional<Replan> replan(const Config& config, int64_t fewest, int64_t most);

}  // namespace switchyard
