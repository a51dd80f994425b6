#include "hub/family.h"

#include <algorithm>

#include <fmt/ranges.h>

#include "base/error.h"

namespace switchyard {

// families.inc has a line for each file in hub/families, made by CMake.
#define SWITCHYARD_FAMILY(name) ModelFamily name##_family();
#include "hub/families.inc"
#undef SWITCHYARD_FAMILY

const std::vector<ModelFamily>& families() {
  static const std::vector<ModelFamily> all = {
#define SWITCHYARD_FAMILY(name) name##_family(),
#include "hub/families.inc"
#undef SWITCHYARD_FAMILY
  };
  return all;
}

namespace {

bool has_type(const ModelFamily& family, const std::string& model_type) {
  const std::vector<std::string>& others = family.other_model_types;
  return family.model_type == model_type ||
         std::find(others.begin(), others.end(), model_type) != others.end();
}

}  // namespace

bool is_copy(DroppedTensor::Reason reason) {
  using Reason = DroppedTensor::Reason;
  return reason == Reason::kTiedHead || reason == Reason::kEmbeddingCopy ||
         reason == Reason::kHeadCopy;
}

const ModelFamily* find_family_by_type(const std::string& model_type) {
  const auto found =
      std::find_if(families().begin(), families().end(),
                   [&](const ModelFamily& family) { return has_type(family, model_type); });
  return found == families().end() ? nullptr : &*found;
}

const ModelFamily& find_family(HfConfig& config) {
  const auto architectures = config.get("architectures", std::vector<std::string>());
  const auto model_type = config.get("model_type", std::string());
  std::vector<std::string> known;
  for (const ModelFamily& family : families()) {
    const bool is_named = architectures.empty() ? has_type(family, model_type)
                                                : family.architecture == architectures.front();
    if (is_named) {
      check<ConfigError>(model_type.empty() || has_type(family, model_type),
                         "{}: model_type is \"{}\", architecture {} has \"{}\": one of them is "
                         "wrong, and transformers goes by model_type",
                         config.source(), model_type, family.architecture, family.model_type);
      return family;
    }
    known.push_back(family.architecture);
  }
  throw ConfigError(
      fmt::format("{}: architecture {} is not supported; these are: {}", config.source(),
                  architectures.empty() ? fmt::format("of model_type \"{}\"", model_type)
                                        : fmt::format("{}", fmt::join(architectures, ", ")),
                  fmt::join(known, ", ")));
}

}  // namespace switchyard
