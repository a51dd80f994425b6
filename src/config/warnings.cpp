#include "config/warnings.h"

#include <array>
#include <utility>

#include <fmt/format.h>

#include "config/idle_settings.h"
#include "config/layer_overrides.h"
#include "config/recompute_modules.h"
#include "config/rules/lines.h"
#include "config/rules/override_rules.h"
#include "config/rules/questions.h"
#include "config/settings.h"

namespace switchyard {
namespace {

std::string sequences_exceed_the_model(const Config& config) {
  const int64_t longest = config.model.max_position;
  return unless(longest == 0 || config.rope.type == RopeType::kDynamic ||
                    config.data.sequence_length <= longest,
                "data.sequence_length ({}) exceeds model.max_position ({}): the model is made for "
                "shorter sequences",
                config.data.sequence_length, longest);
}

std::string warmup_is_cut_off(const Config& config) {
  return unless(config.train.steps == 0 || config.optimizer.warmup_steps <= config.train.steps,
                "optimizer.lr ({}) is never reached: optimizer.warmup_steps ({}) exceeds "
                "train.steps ({})",
                config.optimizer.lr, config.optimizer.warmup_steps, config.train.steps);
}

// A setting that was given its default value loses nothing by being ignored, so that the resolved
// configuration, which gives every value, reads without warnings.
std::vector<std::string> settings_without_effect(const Config& config, const Origins& origins) {
  std::vector<std::string> lines;
  for (const IdleSettings& idle : idle_settings(config)) {
    for (const Setting& setting : settings()) {
      if (idle.are_idle && idle.contain(setting.name) && origins.is_set(setting.name) &&
          !setting.has_default_value(config)) {
        lines.push_back(fmt::format("{} ({}) has no effect: {} [{}]", setting.name,
                                    setting.print(config), idle.reason, origins.of(setting.name)));
      }
    }
  }
  return lines;
}

// Modules to recompute that no layer of this model has.
std::vector<std::string> modules_without_effect(const Config& config) {
  const bool has_moe = has_moe_layers(config);
  const std::array<std::pair<std::string_view, bool>, 4> kinds = {{
      {RecomputeModules::kMlp, has_dense_layers(config)},
      {RecomputeModules::kExperts, has_moe},
      {RecomputeModules::kSharedExpert, has_moe && config.moe.shared_expert_ffn_hidden_size > 0},
      {RecomputeModules::kMoe, has_moe},
  }};
  std::vector<std::string> lines;
  for (const auto& [module, is_there] : kinds) {
    if (recomputes(config.train, module) && !is_there) {
      lines.push_back(fmt::format(
          "train.recompute_modules: {} has no effect: no layer of this model has one", module));
    }
  }
  return lines;
}

std::vector<std::string> overrides_without_effect(const Config& config) {
  if (!can_read_layers(config)) {
    return {};
  }
  std::vector<std::string> lines;
  for (const LayerOverride& text : layer_overrides(config)) {
    const std::vector<int64_t> layers = layers_with_experts(config, text);
    if (layers.empty()) {
      lines.push_back(fmt::format(
          "moe.overrides: \"{}\" has no effect: none of its layers has experts", text.text));
      continue;
    }
    for (const IdleSettings& idle : idle_settings(config_of_layer(config, layers.front()))) {
      for (const std::string& name : text.names) {
        if (idle.are_idle && idle.contain(name)) {
          lines.push_back(fmt::format("moe.overrides: {} in \"{}\" has no effect: {}", name,
                                      text.text, idle.reason));
        }
      }
    }
  }
  return lines;
}

}  // namespace

std::vector<std::string> warnings_about(const Config& config, const Origins& origins) {
  std::vector<std::string> lines = settings_without_effect(config, origins);
  append(lines, overrides_without_effect(config));
  append(lines, modules_without_effect(config));
  lines.push_back(warmup_is_cut_off(config));
  lines.push_back(sequences_exceed_the_model(config));
  return broken_lines(lines);
}

}  // namespace switchyard
