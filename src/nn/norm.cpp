#include "nn/norm.h"

#include <ATen/ATen.h>

namespace switchyard {

Norm::Norm(const Scope& scope, const ModelConfig& model, bool is_sequence_parallel)
    : weight_kind_(norm_weight(model)), epsilon_(model.norm_epsilon) {
  const auto declare = [&](const char* name, const Init& init) {
    return scope.parameters.declare(
        {{.name = scope.name(name),
          .shape = {model.hidden_size},
          .init = init,
          .has_weight_decay = false,
          .tensor = is_sequence_parallel ? Placement::replicated() : Placement::invariant()}},
        {model.hidden_size});
  };
  weight_ = declare("weight", norm_init(model));
  if (model.norm == NormKind::kLayer) {
    bias_ = declare("bias", Init::zeros());
  }
}

Placed Norm::forward(const Placed& input) const {
  return {bias_.defined() ? over_deviation(input.tensor)
                          : rms_norm(input.tensor, weight_, epsilon_, weight_kind_),
          input.placement};
}

// The deviation is the root mean square of what is left when the mean is taken away.
at::Tensor Norm::over_deviation(const at::Tensor& input) const {
  const auto type = input.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
  const at::Tensor wide = input.to(type);
  const at::Tensor centred = wide - wide.mean(-1, /*keepdim=*/true);
  const at::Tensor unit = rms_norm(centred, weight_.to(type), epsilon_, weight_kind_);
  return (unit + bias_.to(type)).to(input.scalar_type());
}

}  // namespace switchyard
