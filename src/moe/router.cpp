#include "moe/router.h"

#include <ATen/ATen.h>

#include "base/shape.h"
#include "ops/dense_linear.h"
#include "ops/route.h"

namespace switchyard {
namespace {

RouteOptions route_options(const MoeConfig& config) {
  return {.top_k = config.top_k,
          .score_function = config.score_function,
          .softmax_over_chosen = !config.pre_softmax,
          .renormalize = config.renormalize,
          .scaling_factor = config.scaling_factor,
          .num_groups = config.num_groups,
          .group_top_k = config.has_groups() ? config.group_top_k : 1,
          .scores_per_group = config.has_groups() ? config.scores_per_group() : 1};
}

}  // namespace

Router::Router(const Scope& scope, const MoeConfig& config, int64_t hidden_size, double init_std)
    : config_(config) {
  // Every rank routes its own tokens, also within a tensor-parallel group: gradients are summed.
  weight_ = scope.parameters.declare({{.name = scope.name("weight"),
                                       .shape = {config.num_experts, hidden_size},
                                       .init = Init::normal(init_std),
                                       .tensor = Placement::replicated()}},
                                     {config.num_experts, hidden_size});
  if (config.router_bias) {
    bias_ = scope.parameters.declare({{.name = scope.name("bias"),
                                       .shape = {config.num_experts},
                                       .init = Init::zeros(),
                                       .has_weight_decay = false,
                                       .tensor = Placement::replicated()}},
                                     {config.num_experts});
  }
  if (config.expert_bias) {
    expert_bias_ = scope.parameters.declare_buffer(scope.name("expert_bias"), {config.num_experts});
  }
}

at::ScalarType Router::score_dtype(const at::Tensor& tokens) const {
  const bool is_wide =
      tokens.scalar_type() == at::kDouble || config_.router_dtype == RouterDtype::kFp64;
  return is_wide ? at::kDouble : at::kFloat;
}

Routing Router::forward(const at::Tensor& tokens, const at::Tensor& expert_ids) const {
  check_shape("router input", tokens, {kAnySize, weight_.size(1)});
  const auto dtype = score_dtype(tokens);
  Routing routing;
  routing.logits = dense_linear(tokens.to(dtype), weight_.to(dtype));  // [tokens, num_experts]
  if (bias_.defined()) {
    routing.logits = routing.logits + bias_.to(dtype);
  }
  const Routes routes = route(routing.logits, expert_bias_, expert_ids, route_options(config_),
                              config_.aux_loss_coeff > 0);
  routing.expert_ids = routes.expert_ids;
  routing.weights = routes.weights;
  routing.probabilities = routes.probabilities;
  return routing;
}

void Router::update_expert_bias(const at::Tensor& tokens_per_expert) {
  const at::Tensor load = tokens_per_expert.to(expert_bias_.scalar_type());
  expert_bias_.add_(at::sign(load.mean() - load), config_.bias_update_rate);
}

}  // namespace switchyard
