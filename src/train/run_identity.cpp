#include "train/run_identity.h"

#include <array>
#include <string_view>

#include <fmt/format.h>

#include "base/random.h"
#include "config/settings.h"

namespace switchyard {
namespace {

// Whole sections, and single settings, that may change.
constexpr std::array<std::string_view, 3> kFreeSections = {"parallel", "checkpoint", "metrics"};
constexpr std::array<std::string_view, 17> kFreeSettings = {"run.dir",
                                                            "data.eval",
                                                            "moe.dispatcher",
                                                            "train.minutes",
                                                            "train.steps",
                                                            "train.micro_batch_size",
                                                            "train.recompute",
                                                            "train.recompute_modules",
                                                            "train.recompute_method",
                                                            "train.recompute_layers",
                                                            "train.offload_modules",
                                                            "optimizer.offload",
                                                            "train.eval_every",
                                                            "train.eval_batches",
                                                            "train.threads",
                                                            "train.log_every",
                                                            "train.max_skipped_steps"};

}  // namespace

bool is_part_of_identity(const std::string& setting) {
  for (const std::string_view free : kFreeSettings) {
    if (setting == free) {
      return false;
    }
  }
  for (const std::string_view section : kFreeSections) {
    if (setting.starts_with(section) && setting[section.size()] == '.') {
      return false;
    }
  }
  return true;
}

std::string run_fingerprint(const Config& config) {
  std::string text;
  for (const Setting& setting : settings()) {
    if (is_part_of_identity(setting.name)) {
      text += setting.name + "=" + setting.print(config) + "\n";
    }
  }
  return fmt::format("{:016x}", hash_name(text));
}

std::vector<std::string> identity_changes(const Config& saved, const Config& now) {
  std::vector<std::string> lines;
  for (const Setting& setting : settings()) {
    if (is_part_of_identity(setting.name) && setting.print(saved) != setting.print(now)) {
      lines.push_back(fmt::format("{}: {} in the checkpoint, {} now", setting.name,
                                  setting.print(saved), setting.print(now)));
    }
  }
  return lines;
}

}  // namespace switchyard
