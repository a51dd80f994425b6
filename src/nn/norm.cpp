#include "nn/norm.h"

#include "ops/rms_norm.h"

namespace switchyard {

Norm::Norm(const Scope& scope, const ModelConfig& model, bool is_sequence_parallel)
    : epsilon_(model.norm_epsilon) {
  weight_ = scope.parameters.declare(
      {{.name = scope.name("weight"),
        .shape = {model.hidden_size},
        .init = Init::ones(),
        .has_weight_decay = false,
        .tensor = is_sequence_parallel ? Placement::replicated() : Placement::invariant()}},
      {model.hidden_size});
}

Placed Norm::forward(const Placed& input) const {
  return {rms_norm(input.tensor, weight_, epsilon_), input.placement};
}

}  // namespace switchyard
