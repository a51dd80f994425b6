#include "model/decoder_layer.h"

#include <optional>
#include <utility>

#include <ATen/ATen.h>

#include "config/offload_modules.h"
#include "config/recompute_modules.h"
#include "nn/offload.h"
#include "nn/recompute.h"

namespace switchyard {
namespace {

Placed add(const Placed& left, const Placed& right) {
  return {left.tensor + right.tensor, left.placement};
}

}  // namespace

DecoderLayer::DecoderLayer(const Scope& scope, const Config& config, const LayerSpec& spec)
    : parameters_(scope.parameters),
      offloads_attention_(offloads(config.train, OffloadModules::kAttention)),
      offloads_mlp_(offloads(config.train, OffloadModules::kMlp)),
      recomputes_norms_(recomputes(config.train, RecomputeModules::kNorms)),
      recomputes_mlp_(recomputes(config.train, RecomputeModules::kMlp)),
      recomputes_moe_(recomputes(config.train, RecomputeModules::kMoe)),
      drops_outputs_(recomputes_norms_ ||
                     recomputes(config.train, RecomputeModules::kCoreAttention)),
      attention_norm_(scope / "attention_norm", config.model, config.parallel.sequence_parallel),
      attention_(scope / "attention", config, spec.attention_window),
      mlp_norm_(scope / "mlp_norm", config.model, config.parallel.sequence_parallel) {
  switch (spec.feed_forward) {
    case FeedForward::kDense:
      mlp_ = std::make_unique<Mlp>(scope / "mlp", config, config.model.ffn_hidden_size,
                                   config.model.mlp_bias);
      break;
    case FeedForward::kMoe:
      moe_ = std::make_unique<MoeLayer>(scope / "moe", config, spec.moe);
      break;
  }
}

Placed DecoderLayer::normed(const Norm& norm, const Placed& hidden) const {
  if (!recomputes_norms_) {
    return norm.forward(hidden);
  }
  const auto run = [&norm, placement = hidden.placement](const std::vector<at::Tensor>& inputs) {
    return norm.forward({inputs[0], placement}).tensor;
  };
  return {recompute_with_output(run, {hidden.tensor}), hidden.placement};
}

Placed DecoderLayer::attend(const Placed& hidden, const ForwardContext& context,
                            std::vector<KeyValueCache>* caches) const {
  const OffloadedActivations offloaded(offloads_attention_, parameters_);
  return attention_.forward(hidden, context, caches);
}

Placed DecoderLayer::forward_mlp(const Placed& hidden) const {
  const OffloadedActivations offloaded(offloads_mlp_, parameters_);
  if (!recomputes_mlp_) {
    return mlp_->forward(hidden);
  }
  const auto run = [this, placement = hidden.placement](const std::vector<at::Tensor>& inputs) {
    return std::vector<at::Tensor>{mlp_->forward({inputs[0], placement}).tensor};
  };
  return {recompute(run, {hidden.tensor})[0], hidden.placement};
}

MoeOutput DecoderLayer::forward_moe(const Placed& hidden, const ForwardContext& context,
                                    const std::shared_ptr<RoutingMemo>& memo) const {
  if (!recomputes_moe_) {
    return moe_->forward(hidden, context, *memo);
  }
  // Statistics come from the first run only; the second reuses the expert ids of the first.
  const auto statistics = std::make_shared<MoeStatistics>();
  const auto run = [this, memo, statistics, context, placement = hidden.placement,
                    is_first = true](const std::vector<at::Tensor>& inputs) mutable {
    MoeOutput output = moe_->forward({inputs[0], placement}, context, *memo);
    if (std::exchange(is_first, false)) {
      *statistics = std::move(output.statistics);
    }
    return std::vector<at::Tensor>{output.hidden.tensor, output.objective};
  };
  const auto outputs = recompute(run, {hidden.tensor});
  return {{outputs[0], hidden.placement}, outputs[1], *statistics};
}

LayerOutput DecoderLayer::forward(const Placed& hidden, const ForwardContext& context,
                                  const std::shared_ptr<RoutingMemo>& memo,
                                  std::vector<KeyValueCache>* caches) const {
  std::optional<DroppedOutputs> dropped;
  if (drops_outputs_) {
    dropped.emplace();
  }
  const Placed attended = add(hidden, attend(normed(attention_norm_, hidden), context, caches));
  const Placed input = normed(mlp_norm_, attended);
  if (mlp_ != nullptr) {
    return {add(attended, forward_mlp(input)), {}, {}};
  }
  MoeOutput output = forward_moe(input, context, memo);
  return {add(attended, output.hidden), output.objective, output.statistics};
}

}  // namespace switchyard
