#include "moe/router.h"

#include <ATen/ATen.h>

#include "base/random.h"
#include "base/shape.h"
#include "ops/dense_linear.h"
#include "ops/random_rows.h"
#include "ops/route.h"
#include "ops/sinkhorn.h"
#include "ops/top_k.h"

namespace switchyard {
namespace {

constexpr RowSites kRowLogits{{"moe.sinkhorn.logits", Purpose::kStatistics},
                              {"moe.sinkhorn.context_logits", Purpose::kStatistics}};

// Rows of random numbers for tokens by their numbers in the run; draw(first, rows) makes them for
// adjacent ones.
template <class Draw>
at::Tensor draw_by_token(const ForwardContext& context, const TokenRanges& own, Draw draw) {
  if (own.ranges().empty()) {
    return draw(context.first_token, 0);
  }
  std::vector<at::Tensor> parts;
  for (const TokenRange& range : own.ranges()) {
    parts.push_back(draw(context.first_token + range.begin, range.size()));
  }
  return parts.size() == 1 ? parts[0] : at::cat(parts);
}

RouteOptions route_options(const MoeConfig& config, RoutingMethod method) {
  if (method == RoutingMethod::kSinkhorn) {
    return {.top_k = config.top_k,
            .score_function = config.top_k == 1 ? ScoreFunction::kSigmoid : ScoreFunction::kSoftmax,
            .softmax_over_chosen = false,
            .scaling_factor = config.scaling_factor};
  }
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

Router::Router(const Scope& scope, const Config& config, const MoeConfig& moe)
    : config_(moe),
      routing_(config.routing),
      ranks_(scope.groups()),
      seed_(static_cast<uint64_t>(config.run.seed)),
      name_(scope.prefix) {
  // Every rank routes its own tokens, also within a tensor-parallel group: gradients are summed.
  weight_ = scope.parameters.declare({{.name = scope.name("weight"),
                                       .shape = {moe.num_experts, config.model.hidden_size},
                                       .init = Init::normal(config.model.init_std),
                                       .tensor = Placement::replicated()}},
                                     {moe.num_experts, config.model.hidden_size});
  if (moe.router_bias) {
    bias_ = scope.parameters.declare({{.name = scope.name("bias"),
                                       .shape = {moe.num_experts},
                                       .init = Init::zeros(),
                                       .has_weight_decay = false,
                                       .tensor = Placement::replicated()}},
                                     {moe.num_experts});
  }
  if (moe.expert_bias) {
    expert_bias_ = scope.parameters.declare_buffer(scope.name("expert_bias"), {moe.num_experts});
  }
}

at::ScalarType Router::score_dtype(const at::Tensor& tokens) const {
  const bool is_wide =
      tokens.scalar_type() == at::kDouble || config_.router_dtype == RouterDtype::kFp64;
  return is_wide ? at::kDouble : at::kFloat;
}

at::Tensor Router::with_jitter(const at::Tensor& input, const ForwardContext& context,
                               const TokenRanges& own) const {
  const RandomStream stream(seed_, name_ + ".input_jitter");
  const double jitter = routing_.input_jitter;
  return input * draw_by_token(context, own, [&](int64_t first, int64_t rows) {
           return uniform_rows(stream, first, rows, input.size(1), 1 - jitter, 1 + jitter,
                               input.scalar_type());
         });
}

// What the choice sees in training: logits with noise, or random numbers in their place.
at::Tensor Router::with_noise(const at::Tensor& logits, const ForwardContext& context,
                              const TokenRanges& own) const {
  const auto normal = [&](const char* purpose, double std) {
    const RandomStream stream(seed_, name_ + purpose);
    return draw_by_token(context, own, [&](int64_t first, int64_t rows) {
      return normal_rows(stream, first, rows, logits.size(1), std, logits.scalar_type());
    });
  };
  if (routing_.method == RoutingMethod::kRandom) {
    return normal(".random_logits", 1) + (logits - logits.detach());
  }
  return routing_.logit_noise > 0 ? logits + normal(".logit_noise", routing_.logit_noise) : logits;
}

// Experts by sinkhorn, per sequence; padding goes where its logits say. [tokens, top_k] of `own`
at::Tensor Router::balanced_ids(const at::Tensor& logits, const SequenceTable& table,
                                const TokenRanges& own) const {
  const at::Tensor scores = ranks_.gather(logits, table, kRowLogits)
                                .to(at::kDouble)
                                .clone();  // [row tokens, num_experts]
  for (int64_t i = 0; i < table.num_sequences(); ++i) {
    at::Tensor of_sequence =
        scores.narrow(0, table.starts[static_cast<size_t>(i)], table.length(i));
    of_sequence.copy_(sinkhorn(of_sequence));
  }
  return top_k_ids(own.select(scores), config_.top_k);
}

Routing Router::forward(const at::Tensor& tokens, const at::Tensor& expert_ids,
                        const ForwardContext& context, const TokenRanges& own) const {
  check_shape("router input", tokens, {kAnySize, weight_.size(1)});
  const auto dtype = score_dtype(tokens);
  at::Tensor input = tokens.to(dtype);
  if (context.is_training && routing_.input_jitter > 0) {
    input = with_jitter(input, context, own);
  }
  Routing routing;
  routing.logits = dense_linear(input, weight_.to(dtype));  // [tokens, num_experts]
  if (bias_.defined()) {
    routing.logits = routing.logits + bias_.to(dtype);
  }
  const at::Tensor logits =
      context.is_training ? with_noise(routing.logits, context, own) : routing.logits;
  at::Tensor ids = expert_ids;
  if (!ids.defined() && context.is_training && routing_.method == RoutingMethod::kSinkhorn) {
    ids = balanced_ids(logits, context.table, own);
  }
  const Routes routes = route(logits, expert_bias_, ids, route_options(config_, routing_.method),
                              context.is_training && config_.has_balance_loss());
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
