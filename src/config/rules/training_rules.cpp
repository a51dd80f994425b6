#include "config/rules/training_rules.h"

#include <algorithm>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "config/offload_modules.h"
#include "config/recompute_modules.h"
#include "config/rules/lines.h"
#include "config/rules/questions.h"

namespace switchyard {
namespace {

std::string micro_batches_fill_the_batch(const Config& config) {
  return multiple_of("train.global_batch_size", config.train.global_batch_size,
                     "train.micro_batch_size", config.train.micro_batch_size);
}

std::string training_ends(const Config& config) {
  return unless(config.train.steps > 0 || config.train.minutes > 0.0,
                "train.steps or train.minutes must be given: both are 0, the run would not end");
}

std::string learning_rate_falls(const Config& config) {
  return unless(config.optimizer.min_lr <= config.optimizer.lr,
                "optimizer.min_lr ({}) must not exceed optimizer.lr ({})", config.optimizer.min_lr,
                config.optimizer.lr);
}

std::string warm_up_rises(const Config& config) {
  return unless(config.optimizer.initial_lr <= config.optimizer.lr,
                "optimizer.initial_lr ({}) must not exceed optimizer.lr ({})",
                config.optimizer.initial_lr, config.optimizer.lr);
}

// A run given minutes learns its length later, and shortens the decay where it must.
std::string decay_fits_the_run(const Config& config) {
  const OptimizerConfig& optimizer = config.optimizer;
  return unless(optimizer.schedule != LrSchedule::kWsd || config.train.steps == 0 ||
                    optimizer.decay_steps == 0 ||
                    optimizer.decay_steps + optimizer.warmup_steps <= config.train.steps,
                "optimizer.warmup_steps + optimizer.decay_steps ({} + {}) must not exceed "
                "train.steps ({})",
                optimizer.warmup_steps, optimizer.decay_steps, config.train.steps);
}

std::string recompute_names_modules(const Config& config) {
  const TrainConfig& train = config.train;
  if (train.recompute != Recompute::kModules) {
    return "";
  }
  const auto& all = RecomputeModules::kAll;
  if (train.recompute_modules.empty()) {
    return fmt::format(
        "train.recompute is modules: train.recompute_modules must name at least one of {}",
        fmt::join(all, ", "));
  }
  for (const std::string& name : train.recompute_modules) {
    if (std::find(all.begin(), all.end(), name) == all.end()) {
      return fmt::format("train.recompute_modules: there is no {}; the modules are {}", name,
                         fmt::join(all, ", "));
    }
  }
  const bool holds_parts = names_module(train, RecomputeModules::kExperts) ||
                           names_module(train, RecomputeModules::kSharedExpert);
  return unless(!names_module(train, RecomputeModules::kMoe) || !holds_parts,
                "train.recompute_modules: moe computes experts and shared_expert again already: "
                "leave them out, or moe");
}

std::string offload_names_modules(const Config& config) {
  const auto& all = OffloadModules::kAll;
  for (const std::string& name : config.train.offload_modules) {
    if (std::find(all.begin(), all.end(), name) == all.end()) {
      return fmt::format("train.offload_modules: there is no {}; the modules are {}", name,
                         fmt::join(all, ", "));
    }
  }
  return "";
}

}  // namespace

std::vector<std::string> training_rules(const Config& config, ConfigUse use) {
  return broken_lines({
      recompute_names_modules(config),
      offload_names_modules(config),
      learning_rate_falls(config),
      warm_up_rises(config),
      decay_fits_the_run(config),
      use == ConfigUse::kTrain ? micro_batches_fill_the_batch(config) : "",
      use == ConfigUse::kTrain ? training_ends(config) : "",
  });
}

}  // namespace switchyard
