#include "model/parameter_count.h"

#include <functional>
#include <numeric>
#include <string>

#include "model/language_model.h"
#include "parallel/groups.h"

namespace switchyard {
namespace {

// Of "layers.7.moe.experts.down": 7.
size_t layer_of(const std::string& name) {
  return std::stoul(name.substr(name.find('.') + 1));
}

}  // namespace

ParameterCount count_parameters(const Config& config) {
  Config whole = config;
  whole.parallel = {};
  const std::unique_ptr<Groups> groups = Groups::single();
  Parameters parameters(*groups, Dtypes::fp32(), 0, FirstValues::kNone);
  const LanguageModel model(parameters, whole);
  const std::vector<LayerSpec> layers = describe_layers(whole);

  ParameterCount count;
  for (const auto& storage : parameters.storages()) {
    for (const Parameter& piece : storage->pieces) {
      const std::vector<int64_t>& shape = piece.spec().shape;
      const int64_t elements =
          std::accumulate(shape.begin(), shape.end(), int64_t{1}, std::multiplies<>());
      if (piece.name().starts_with("mtp.")) {
        count.prediction += elements;
        continue;
      }
      const bool is_routed = piece.spec().family == Family::kExpert;
      count.total += elements;
      // The first dim of an expert parameter counts experts.
      count.active +=
          is_routed ? elements / shape[0] * layers[layer_of(piece.name())].moe.top_k : elements;
    }
  }
  return count;
}

}  // namespace switchyard
