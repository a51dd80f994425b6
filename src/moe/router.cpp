#include "moe/router.h"

#include <ATen/ATen.h>

#include "base/shape.h"
#include "ops/top_k.h"

namespace switchyard {
namespace {

at::ScalarType score_dtype(const at::Tensor& tokens) {
  return tokens.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
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
  if (config.expert_bias) {
    bias_ = scope.parameters.declare_buffer(scope.name("expert_bias"), {config.num_experts});
  }
}

Routing Router::forward(const at::Tensor& tokens, const at::Tensor& expert_ids) const {
  check_shape("router input", tokens, {kAnySize, weight_.size(1)});
  const auto dtype = score_dtype(tokens);
  Routing routing;
  routing.logits = at::linear(tokens.to(dtype), weight_.to(dtype));  // [tokens, num_experts]
  const bool is_sigmoid = config_.score_function == ScoreFunction::kSigmoid;
  const at::Tensor scores =
      is_sigmoid ? at::sigmoid(routing.logits) : at::softmax(routing.logits, -1);
  routing.probabilities = is_sigmoid ? scores / (scores.sum(-1, /*keepdim=*/true) + 1e-20) : scores;

  const at::Tensor ranking = (bias_.defined() ? scores + bias_ : routing.logits).detach();
  routing.expert_ids = expert_ids.defined() ? expert_ids : top_k_ids(ranking, config_.top_k);

  if (is_sigmoid || config_.pre_softmax) {
    routing.weights = scores.gather(-1, routing.expert_ids);  // [tokens, top_k]
    if (config_.renormalize) {
      routing.weights = routing.weights / (routing.weights.sum(-1, /*keepdim=*/true) + 1e-20);
    }
  } else {
    routing.weights = at::softmax(routing.logits.gather(-1, routing.expert_ids), -1);
  }
  if (config_.scaling_factor != 1.0) {
    routing.weights = routing.weights * config_.scaling_factor;
  }
  return routing;
}

void Router::update_bias(const at::Tensor& tokens_per_expert) {
  const at::Tensor load = tokens_per_expert.to(bias_.scalar_type());
  bias_.add_(at::sign(load.mean() - load), config_.bias_update_rate);
}

}  // namespace switchyard
