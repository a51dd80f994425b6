#pragma once

#include <algorithm>
#include <array>
#include <string_view>

#include "config/config.h"

namespace switchyard {

// The words of train.offload_modules: parts of a layer whose kept activations can wait in host
// memory.
struct OffloadModules {
  static constexpr std::string_view kAttention = "attention";
  static constexpr std::string_view kMlp = "mlp";  // of dense layers
  static constexpr std::string_view kExperts = "experts";
  static constexpr std::string_view kSharedExpert = "shared_expert";
  static constexpr std::array kAll = {kAttention, kMlp, kExperts, kSharedExpert};
};

inline bool offloads(const TrainConfig& train, std::string_view module) {
  const auto& names = train.offload_modules;
  return std::find(names.begin(), names.end(), module) != names.end();
}

}  // namespace switchyard
