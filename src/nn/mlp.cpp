#include "nn/mlp.h"

#include <ATen/ATen.h>

#include "nn/init.h"
#include "ops/activation.h"

namespace switchyard {
namespace {

constexpr Site kInput{"mlp.input", Purpose::kTensorParallel};
constexpr Site kOutput{"mlp.output", Purpose::kTensorParallel};

std::string up_name(const ModelConfig& model) {
  return model.gated_mlp ? "gate_up" : "up";
}

// [2, ffn, ...] or [ffn, ...]
std::vector<int64_t> up_shape(const ModelConfig& model, std::vector<int64_t> shape) {
  if (model.gated_mlp) {
    shape.insert(shape.begin(), 2);
  }
  return shape;
}

Placement cut_by_ffn(const ModelConfig& model, int64_t ffn) {
  return Placement::sharded(model.gated_mlp ? 1 : 0, ffn);
}

std::vector<ParameterSpec> up_biases(const Scope& scope, const ModelConfig& model, int64_t ffn,
                                     bool has_bias) {
  if (!has_bias) {
    return {};
  }
  return {{.name = scope.name(up_name(model) + "_bias"),
           .shape = up_shape(model, {ffn}),
           .init = Init::zeros(),
           .has_weight_decay = false,
           .tensor = cut_by_ffn(model, ffn)}};
}

}  // namespace

Mlp::Mlp(const Scope& scope, const Config& config, int64_t ffn_hidden_size, bool has_bias,
         const Multipliers& multipliers)
    : function_(config.model.mlp_function()),
      multipliers_(multipliers),
      up_(scope,
          {{.name = scope.name(up_name(config.model)),
            .shape = up_shape(config.model, {ffn_hidden_size, config.model.hidden_size}),
            .init = Init::normal(config.model.init_std),
            .tensor = cut_by_ffn(config.model, ffn_hidden_size)}},
          config.model.hidden_size, kInput,
          up_biases(scope, config.model, ffn_hidden_size, has_bias)),
      down_(scope,
            {.name = scope.name("down"),
             .shape = {config.model.hidden_size, ffn_hidden_size},
             .init = Init::normal(output_init_std(config.model)),
             .tensor = Placement::sharded(1, ffn_hidden_size)},
            kOutput, row_bias(has_bias, scope, "down_bias", config)) {}

Placed Mlp::forward(const Placed& hidden) const {
  at::Tensor up = up_.forward(hidden);  // [tokens, 2 x ffn/tp], or without a gate half of it
  if (multipliers_.gate != 1) {
    up = with_gate_multiplied(up);
  }
  const at::Tensor activated = weighted_activation(up, at::Tensor(), function_);
  Placed output = down_.forward(activated, hidden.placement);  // from [tokens, ffn/tp]
  output.tensor = scaled(output.tensor, multipliers_.output);
  return output;
}

at::Tensor Mlp::with_gate_multiplied(const at::Tensor& gate_up) const {
  const int64_t ffn = gate_up.size(1) / 2;
  const at::Tensor multipliers = at::cat(
      {at::full({ffn}, multipliers_.gate, gate_up.options()), at::ones({ffn}, gate_up.options())});
  return gate_up * multipliers;
}

}  // namespace switchyard
