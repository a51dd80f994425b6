#pragma once

#include <algorithm>
#include <array>
#include <string_view>

#include "config/config.h"

namespace switchyard {

// The words of train.recompute_modules: parts of a layer that can be computed again in backward.
struct RecomputeModules {
  static constexpr std::string_view kCoreAttention = "core_attention";
  static constexpr std::string_view kNorms = "norms";
  static constexpr std::string_view kMlp = "mlp";  // of dense layers
  static constexpr std::string_view kExperts = "experts";
  static constexpr std::string_view kSharedExpert = "shared_expert";
  static constexpr std::string_view kMoe = "moe";  // the whole MoE layer, with its communication
  static constexpr std::array kAll = {kCoreAttention, kNorms, kMlp, kExperts, kSharedExpert, kMoe};
};

inline bool names_module(const TrainConfig& train, std::string_view module) {
  const auto& names = train.recompute_modules;
  return std::find(names.begin(), names.end(), module) != names.end();
}

inline bool recomputes(const TrainConfig& train, std::string_view module) {
  return train.recompute == Recompute::kModules && names_module(train, module);
}

}  // namespace switchyard
