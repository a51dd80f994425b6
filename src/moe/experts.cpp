#include "moe/experts.h"

#include <chrono>

#include "nn/init.h"

namespace switchyard {
namespace {

int64_t local_experts(const Scope& scope, const MoeConfig& moe) {
  return moe.num_experts / scope.groups().mesh().size(Axis::kExpert);
}

int64_t local_up_width(const Scope& scope, const ModelConfig& model, const MoeConfig& moe) {
  return model.mlp_function().num_inputs() * moe.ffn_hidden_size /
         scope.groups().mesh().size(Axis::kExpertTensor);
}

// Features that an expert gets and gives.
int64_t width_of(const ModelConfig& model, const MoeConfig& moe) {
  return moe.latent_size > 0 ? moe.latent_size : model.hidden_size;
}

// [num_experts, 2, ffn, ...] or, without a gate, [num_experts, ffn, ...], cut by ffn.
ParameterSpec up_spec(const Scope& scope, const ModelConfig& model, const MoeConfig& moe,
                      const std::string& suffix) {
  ParameterSpec spec{.name = scope.name((model.gated_mlp ? "gate_up" : "up") + suffix),
                     .shape = {moe.num_experts},
                     .init = Init::zeros(),
                     .family = Family::kExpert,
                     .tensor = Placement::sharded(model.gated_mlp ? 2 : 1, moe.ffn_hidden_size)};
  if (model.gated_mlp) {
    spec.shape.push_back(2);
  }
  spec.shape.push_back(moe.ffn_hidden_size);
  return spec;
}

}  // namespace

GroupedExperts::GroupedExperts(const Scope& scope, const ModelConfig& model, const MoeConfig& moe) {
  const int64_t width = width_of(model, moe);
  ParameterSpec up = up_spec(scope, model, moe, "");
  up.shape.push_back(width);
  up.init = Init::normal(model.init_std);
  up_ = scope.parameters.declare(
      {up}, {local_experts(scope, moe), local_up_width(scope, model, moe), width});
  down_ = scope.parameters.declare(
      {{.name = scope.name("down"),
        .shape = {moe.num_experts, width, moe.ffn_hidden_size},
        .init = Init::normal(output_init_std(model)),
        .family = Family::kExpert,
        .tensor = Placement::sharded(2, moe.ffn_hidden_size)}},
      {local_experts(scope, moe), width,
       moe.ffn_hidden_size / scope.groups().mesh().size(Axis::kExpertTensor)});
  options_.function = model.mlp_function();
  if (moe.linear_bias) {
    declare_biases(scope, model, moe);
  }
}

void GroupedExperts::declare_biases(const Scope& scope, const ModelConfig& model,
                                    const MoeConfig& moe) {
  ParameterSpec up_bias = up_spec(scope, model, moe, "_bias");
  up_bias.has_weight_decay = false;
  options_.up_bias = scope.parameters.declare(
      {up_bias}, {local_experts(scope, moe), local_up_width(scope, model, moe)});
  const Mesh& mesh = scope.groups().mesh();
  const int64_t all_columns = width_of(model, moe);
  const int64_t width = all_columns / mesh.size(Axis::kExpertTensor);
  options_.down_bias = scope.parameters.declare({{.name = scope.name("down_bias"),
                                                  .shape = {moe.num_experts, all_columns},
                                                  .init = Init::zeros(),
                                                  .has_weight_decay = false,
                                                  .family = Family::kExpert,
                                                  .tensor = Placement::sharded(1, all_columns)}},
                                                {local_experts(scope, moe), width});
  options_.first_biased_column =
      width * mesh.coordinate(scope.groups().rank(), Axis::kExpertTensor);
}

at::Tensor GroupedExperts::forward(const DispatchedTokens& dispatched) const {
  using Clock = std::chrono::steady_clock;
  const auto start = Clock::now();
  at::Tensor result = expert_mlp(dispatched.rows, up_, down_, dispatched.weights,
                                 dispatched.rows_per_expert, options_);
  const auto multiply_adds_per_row =
      static_cast<double>((up_.size(1) + down_.size(2)) * up_.size(2));
  work_.add({.seconds = std::chrono::duration<double>(Clock::now() - start).count(),
             .flops = 2 * multiply_adds_per_row * static_cast<double>(dispatched.rows.size(0))});
  return result;
}

}  // namespace switchyard
