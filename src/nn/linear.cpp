#include "nn/linear.h"

#include <ATen/ATen.h>

#include "config/config.h"
#include "ops/dense_linear.h"

namespace switchyard {
namespace {

int64_t numel(const std::vector<int64_t>& shape) {
  int64_t product = 1;
  for (const int64_t size : shape) {
    product *= size;
  }
  return product;
}

}  // namespace

ColumnLinear::ColumnLinear(const Scope& scope, std::vector<ParameterSpec> pieces,
                           int64_t in_features, const Site& input_site,
                           std::vector<ParameterSpec> biases)
    : tensor_group_(scope.groups().tensor()), input_site_(input_site) {
  int64_t out_features = 0;  // on this rank
  for (const ParameterSpec& piece : pieces) {
    const bool is_cut = piece.tensor.kind == PlacementKind::kSharded;
    out_features += numel(piece.shape) / in_features / (is_cut ? tensor_group_.size() : 1);
  }
  weight_ = scope.parameters.declare(std::move(pieces), {out_features, in_features});
  if (!biases.empty()) {
    bias_ = scope.parameters.declare(std::move(biases), {out_features});
  }
}

at::Tensor ColumnLinear::forward(const Placed& input) const {
  const Placed all = convert(input, Placement::replicated(), tensor_group_, input_site_);
  const at::Tensor product = dense_linear(all.tensor, weight_);
  return bias_.defined() ? product + bias_ : product;
}

RowLinear::RowLinear(const Scope& scope, ParameterSpec weight, const Site& output_site,
                     std::optional<ParameterSpec> bias)
    : tensor_group_(scope.groups().tensor()), output_site_(output_site) {
  const int64_t out_features = weight.shape.front();
  const int64_t in_features = numel(weight.shape) / out_features;
  weight_ = scope.parameters.declare({std::move(weight)},
                                     {out_features, in_features / tensor_group_.size()});
  if (bias.has_value()) {
    bias_ = scope.parameters.declare({std::move(*bias)}, {out_features});
  }
}

Placed RowLinear::forward(const at::Tensor& input, const Placement& output) const {
  const Placed part{dense_linear(input, weight_), Placement::partial()};
  const Placed sum = convert(part, output, tensor_group_, output_site_);
  return {bias_.defined() ? sum.tensor + bias_ : sum.tensor, sum.placement};
}

std::optional<ParameterSpec> row_bias(bool has_bias, const Scope& scope, const std::string& name,
                                      const Config& config) {
  if (!has_bias) {
    return std::nullopt;
  }
  const bool is_sequence_parallel = config.parallel.sequence_parallel;
  return ParameterSpec{
      .name = scope.name(name),
      .shape = {config.model.hidden_size},
      .init = Init::zeros(),
      .has_weight_decay = false,
      .tensor = is_sequence_parallel ? Placement::replicated() : Placement::invariant()};
}

at::Tensor scaled(const at::Tensor& tensor, double factor) {
  return factor == 1.0 ? tensor : tensor * factor;
}

}  // namespace switchyard
