#include "config/rules.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/error.h"
#include "config/not_built.h"
#include "config/rules/attention_rules.h"
#include "config/rules/expert_rules.h"
#include "config/rules/layout_rules.h"
#include "config/rules/lines.h"
#include "config/rules/model_rules.h"
#include "config/rules/override_rules.h"
#include "config/rules/scan_rules.h"
#include "config/rules/training_rules.h"
#include "config/rules/world_rules.h"

namespace switchyard {
namespace {

void throw_lines(const std::vector<std::string>& lines) {
  check<ConfigError>(lines.empty(), "{}", fmt::join(lines, "\n"));
}

}  // namespace

std::vector<std::string> broken_rules(const Config& config, ConfigUse use) {
  std::vector<std::string> lines;
  append(lines, model_rules(config));
  append(lines, attention_rules(config));
  append(lines, scan_rules(config));
  append(lines, layout_rules(config));
  append(lines, training_rules(config, use));
  append(lines, expert_rules(config, use));
  append(lines, override_rules(config, use));
  append(lines, settings_not_built(config));
  return lines;
}

std::vector<std::string> broken_rules_of_world(const Config& config, int64_t num_ranks) {
  return world_rules(config, num_ranks);
}

void check_rules(const Config& config, ConfigUse use) {
  throw_lines(broken_rules(config, use));
}

void check_rules_of_world(const Config& config, int64_t num_ranks) {
  throw_lines(broken_rules_of_world(config, num_ranks));
}

}  // namespace switchyard
