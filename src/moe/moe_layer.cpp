#include "moe/moe_layer.h"

#include <ATen/ATen.h>

#include "config/offload_modules.h"
#include "config/recompute_modules.h"
#include "nn/init.h"
#include "nn/offload.h"
#include "nn/recompute.h"
#include "ops/dense_linear.h"
#include "parallel/collectives.h"

namespace switchyard {
namespace {

constexpr Site kTakeTokens{"moe.take_tokens", Purpose::kTensorParallel};
constexpr Site kGiveTokens{"moe.give_tokens", Purpose::kTensorParallel};

// A projection that each rank of tp uses for its own tokens.
at::Tensor declare_projection(const Scope& scope, int64_t out_features, int64_t in_features,
                              double init_std) {
  return scope.parameters.declare({{.name = scope.name("weight"),
                                    .shape = {out_features, in_features},
                                    .init = Init::normal(init_std),
                                    .tensor = Placement::replicated()}},
                                  {out_features, in_features});
}

void accumulate(at::Tensor& objective, const at::Tensor& term) {
  objective = objective.defined() ? objective + term : term;
}

}  // namespace

MoeLayer::MoeLayer(const Scope& scope, const Config& config, const MoeConfig& moe)
    : config_(moe),
      routing_(config.routing),
      parameters_(scope.parameters),
      offloads_experts_(offloads(config.train, OffloadModules::kExperts)),
      offloads_shared_expert_(offloads(config.train, OffloadModules::kSharedExpert)),
      recomputes_experts_(recomputes(config.train, RecomputeModules::kExperts)),
      recomputes_shared_expert_(recomputes(config.train, RecomputeModules::kSharedExpert)),
      tensor_group_(scope.groups().tensor()),
      row_ranks_(scope.groups()),
      all_ranks_(scope.groups()[GroupName::kDataContextTensor]) {
  const ModelConfig& model = config.model;
  router_ = std::make_unique<Router>(scope / "router", config, moe);
  dispatcher_ = make_dispatcher(moe, scope.groups());
  experts_ = std::make_unique<GroupedExperts>(scope / "experts", model, moe);
  if (moe.latent_size > 0) {
    latent_down_ = declare_projection(scope / "latent_down", moe.latent_size, model.hidden_size,
                                      model.init_std);
    latent_up_ = declare_projection(scope / "latent_up", model.hidden_size, moe.latent_size,
                                    output_init_std(model));
  }
  if (moe.shared_expert_ffn_hidden_size == 0) {
    return;
  }
  shared_expert_ =
      std::make_unique<Mlp>(scope / "shared_expert", config, moe.shared_expert_ffn_hidden_size,
                            moe.shared_expert_bias, Mlp::Multipliers{});
  if (moe.shared_expert_gate) {
    // With sequence parallelism each tp rank has its own tokens, as in a norm.
    shared_expert_gate_ = scope.parameters.declare(
        {{.name = (scope / "shared_expert_gate").name("weight"),
          .shape = {1, model.hidden_size},
          .init = Init::normal(model.init_std),
          .tensor = config.parallel.sequence_parallel ? Placement::replicated()
                                                      : Placement::invariant()}},
        {1, model.hidden_size});
  }
}

MoeOutput MoeLayer::forward(const Placed& hidden, const ForwardContext& context,
                            RoutingMemo& memo) const {
  const int64_t num_tokens = context.table.held.size();
  // Within a tensor-parallel group each rank routes and dispatches its own share of the tokens.
  const Placed tokens =
      convert(hidden, Placement::sharded(0, num_tokens), tensor_group_, kTakeTokens);
  const Routing routing = route(tokens.tensor, context, memo);
  const DispatchedTokens dispatched = dispatch(tokens.tensor, routing);
  const at::Tensor results = experts(dispatched);

  MoeOutput output;
  const auto give = [&](const at::Tensor& combined) {  // [tokens/tp, hidden]
    output.hidden =
        convert({combined, tokens.placement}, hidden.placement, tensor_group_, kGiveTokens);
  };
  if (has_shared_expert()) {
    // It computes while the results travel, and its gradient while theirs do.
    const RowsUnderWay returning = dispatcher_->start_combine(results, dispatched);
    const Placed shared = shared_expert(hidden);
    give(from_latent(dispatcher_->finish_combine(returning, dispatched)));
    output.hidden.tensor = output.hidden.tensor + shared.tensor;
  } else {
    give(combine(results, dispatched));
  }
  if (context.is_training) {
    add_auxiliary_terms(routing, context, memo, output);
  }
  return output;
}

Routing MoeLayer::route(const at::Tensor& tokens, const ForwardContext& context,
                        RoutingMemo& memo) const {
  const TokenRanges own = row_ranks_.own_tokens(context.table);
  Routing routing = router_->forward(tokens, memo.expert_ids, context, own);
  memo.expert_ids = routing.expert_ids;
  if (context.is_training && routing_.capacity_factor > 0) {
    if (!memo.kept.has_value()) {
      memo.kept = keep_capacity(routing, routing_, context.table, own, row_ranks_);
    }
    routing.kept_ids = memo.kept->expert_ids;
    routing.padding_rows = memo.kept->padding_rows;
  }
  return routing;
}

DispatchedTokens MoeLayer::dispatch(const at::Tensor& tokens, const Routing& routing) const {
  return dispatcher_->dispatch(latent_down_.defined() ? dense_linear(tokens, latent_down_) : tokens,
                               routing);
}

at::Tensor MoeLayer::experts(const DispatchedTokens& dispatched) const {
  const OffloadedActivations offloaded(offloads_experts_, parameters_);
  if (!recomputes_experts_) {
    return experts_->forward(dispatched);
  }
  const auto run = [this,
                    counts = dispatched.rows_per_expert](const std::vector<at::Tensor>& inputs) {
    return std::vector<at::Tensor>{experts_->forward({inputs[0], inputs[1], counts, nullptr})};
  };
  return recompute(run, {dispatched.rows, dispatched.weights})[0];
}

at::Tensor MoeLayer::combine(const at::Tensor& rows, const DispatchedTokens& dispatched) const {
  return from_latent(dispatcher_->combine(rows, dispatched));
}

at::Tensor MoeLayer::from_latent(const at::Tensor& combined) const {
  return latent_up_.defined() ? dense_linear(combined, latent_up_) : combined;
}

Placed MoeLayer::shared_expert(const Placed& hidden) const {
  const OffloadedActivations offloaded(offloads_shared_expert_, parameters_);
  const auto run = [this, placement = hidden.placement](const std::vector<at::Tensor>& inputs) {
    const at::Tensor output = shared_expert_->forward({inputs[0], placement}).tensor;
    if (!shared_expert_gate_.defined()) {
      return std::vector<at::Tensor>{output};
    }
    return std::vector<at::Tensor>{output *
                                   at::sigmoid(dense_linear(inputs[0], shared_expert_gate_))};
  };
  const std::vector<at::Tensor> inputs = {hidden.tensor};
  return {(recomputes_shared_expert_ ? recompute(run, inputs) : run(inputs))[0], hidden.placement};
}

void MoeLayer::add_auxiliary_terms(const Routing& routing, const ForwardContext& context,
                                   RoutingMemo& memo, MoeOutput& output) const {
  const TokenRanges own = row_ranks_.own_tokens(context.table);
  MoeStatistics& statistics = output.statistics;
  statistics.tokens_per_expert = count_tokens_per_expert(routing, context, own);
  if (memo.kept.has_value()) {
    statistics.dropped_copies = at::full({}, memo.kept->num_dropped, at::kLong);
  }
  if (config_.aux_loss_coeff > 0) {
    const at::Tensor loss = sequence_balance_loss(routing, context, own, row_ranks_);
    statistics.balance_loss = loss.detach();
    accumulate(output.objective, loss * config_.aux_loss_coeff);
  }
  if (config_.step_aux_loss_coeff > 0 || config_.global_aux_loss_coeff > 0) {
    add_set_terms(routing, context, memo, output);
  }
  if (config_.z_loss_coeff > 0) {
    const at::Tensor loss = router_z_loss(routing, context, own, tensor_group_.ledger());
    statistics.z_loss = loss.detach();
    accumulate(output.objective, loss * config_.z_loss_coeff);
  }
}

void MoeLayer::add_set_terms(const Routing& routing, const ForwardContext& context,
                             RoutingMemo& memo, MoeOutput& output) const {
  const TokenRanges own = row_ranks_.own_tokens(context.table);
  if (!memo.step_loads.defined()) {
    memo.step_loads = count_step_loads(routing, context, own, all_ranks_);
    memo.loads_so_far = memo.loads->defined() ? *memo.loads + memo.step_loads : memo.step_loads;
    *memo.loads = memo.loads_so_far;
  }
  const auto add = [&](const at::Tensor& loads, double coeff, at::Tensor& statistic) {
    if (coeff > 0) {
      const at::Tensor loss =
          set_balance_loss(routing, context, own, loads, tensor_group_.ledger());
      statistic = loss.detach();
      accumulate(output.objective, loss * coeff);
    }
  };
  add(memo.step_loads, config_.step_aux_loss_coeff, output.statistics.step_balance_loss);
  add(memo.loads_so_far, config_.global_aux_loss_coeff, output.statistics.global_balance_loss);
}

}  // namespace switchyard
