#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "config/config.h"
#include "data/tokenizer.h"
#include "parallel/groups.h"

namespace switchyard {

// What a run makes of its settings before it begins.

// The tokenizer that data.tokenizer names or, when that is no longer there and the run has a
// checkpoint, the run's own copy of it. Throws as make_tokenizer() does.
std::unique_ptr<Tokenizer> open_tokenizer(const Config& config);

// The settings with what the tokenizer decides filled in, checked again, also for that many ranks.
// Throws ConfigError.
Config resolve(Config config, const Tokenizer& tokenizer, int64_t world_size);

// What the order of sums depends on, for records: "world 4: tp 2 pp 1 ep 2 etp 1".
std::string describe_layout(const Config& config, const Groups& groups);

}  // namespace switchyard
