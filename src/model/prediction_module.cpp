#include "model/prediction_module.h"

#include <ATen/ATen.h>

#include "parallel/collectives.h"

namespace switchyard {
namespace {

constexpr Site kInput{"prediction.input", Purpose::kTensorParallel};
constexpr Site kFeatures{"prediction.features", Purpose::kTensorParallel};
constexpr Site kOutput{"prediction.output", Purpose::kTensorParallel};

ParameterSpec projection_spec(const Scope& scope, const ModelConfig& model) {
  return {.name = scope.name("projection"),
          .shape = {model.hidden_size, 2, model.hidden_size},
          .init = Init::normal(model.init_std),
          .tensor = Placement::sharded(2, model.hidden_size)};
}

}  // namespace

PredictionModule::PredictionModule(const Scope& scope, const Config& config)
    : tensor_group_(scope.groups().tensor()),
      embedding_norm_(scope / "embedding_norm", config.model, config.parallel.sequence_parallel),
      hidden_norm_(scope / "hidden_norm", config.model, config.parallel.sequence_parallel),
      projection_(scope, projection_spec(scope, config.model), kOutput),
      final_norm_(scope / "final_norm", config.model, config.parallel.sequence_parallel) {}

// All tokens, and this rank's features of them.
at::Tensor PredictionModule::features_here(const Placed& value) const {
  const Placed whole = convert(value, Placement::invariant(), tensor_group_, kInput);
  return convert(whole, Placement::sharded(1, whole.tensor.size(1)), tensor_group_, kFeatures)
      .tensor;
}

Placed PredictionModule::join(const Placed& embedded, const Placed& hidden) const {
  const at::Tensor features = at::cat({features_here(embedding_norm_.forward(embedded)),
                                       features_here(hidden_norm_.forward(hidden))},
                                      1);
  return projection_.forward(features, hidden.placement);
}

}  // namespace switchyard
