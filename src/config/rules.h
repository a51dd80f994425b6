#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "config/config.h"

namespace switchyard {

// What a configuration is read for. Training needs settings and has rules that the description of a
// model and its layout does without.
enum class ConfigUse { kDescribe, kTrain };

// Rules between settings. Each returns one line per broken rule: the settings, their values, what
// is allowed, as in `moe.num_experts (60) must be a multiple of parallel.expert_size (8)`.
//
// Settings of 0 that stand for a value found later (model.vocab_size) break no rule: whoever fills
// them in calls check_rules() again.
std::vector<std::string> broken_rules(const Config& config, ConfigUse use);

// The rules that need the number of ranks.
std::vector<std::string> broken_rules_of_world(const Config& config, int64_t num_ranks);

// Throw ConfigError with all lines.
void check_rules(const Config& config, ConfigUse use);
void check_rules_of_world(const Config& config, int64_t num_ranks);

}  // namespace switchyard
