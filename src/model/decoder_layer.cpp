#include "model/decoder_layer.h"

#include <optional>
#include <utility>

#include <ATen/ATen.h>

#include "config/offload_modules.h"
#include "config/recompute_modules.h"
#include "model/make_mixer.h"
#include "nn/offload.h"
#include "nn/recompute.h"

namespace switchyard {
namespace {

Placed add(const Placed& left, const Placed& right) {
  return {left.tensor + right.tensor, left.placement};
}

// What a half of a layer adds to the residual stream. Nothing keeps the norm's output, so that
// there is nothing to recompute.
Placed add_normed(const Placed& residual, const Placed& output, const Norm* post_norm) {
  return add(residual, post_norm == nullptr ? output : post_norm->forward(output));
}

}  // namespace

DecoderLayer::DecoderLayer(const Scope& scope, const Config& config, const LayerSpec& spec)
    : parameters_(scope.parameters),
      offloads_mixers_(offloads(config.train, OffloadModules::kAttention)),
      offloads_mlp_(offloads(config.train, OffloadModules::kMlp)),
      recomputes_norms_(recomputes(config.train, RecomputeModules::kNorms)),
      recomputes_mlp_(recomputes(config.train, RecomputeModules::kMlp)),
      recomputes_moe_(recomputes(config.train, RecomputeModules::kMoe)),
      drops_outputs_(recomputes_norms_ ||
                     recomputes(config.train, RecomputeModules::kCoreAttention)) {
  const auto make_norm = [&](const char* name) {
    return std::make_unique<Norm>(scope / name, config.model, config.parallel.sequence_parallel);
  };
  const auto make_post_norm = [&](const char* name) {
    return config.model.post_norms ? make_norm(name) : nullptr;
  };
  if (!spec.kinds.mixers.empty()) {
    mixer_norm_ = make_norm("mixer_norm");
    for (const MixerKind kind : spec.kinds.mixers) {
      mixers_.push_back(make_mixer(scope, config, kind, spec));
    }
    mixer_post_norm_ = make_post_norm("mixer_post_norm");
  }
  switch (spec.kinds.feed_forward) {
    case FeedForward::kNone:
      break;
    case FeedForward::kDense:
      mlp_norm_ = make_norm("mlp_norm");
      mlp_ = std::make_unique<Mlp>(
          scope / "mlp", config, config.model.ffn_hidden_size, config.model.mlp_bias,
          Mlp::Multipliers{config.multipliers.mlp_gate, config.multipliers.mlp_output});
      break;
    case FeedForward::kMoe:
      mlp_norm_ = make_norm("mlp_norm");
      moe_ = std::make_unique<MoeLayer>(scope / "moe", config, spec.moe);
      break;
  }
  if (mlp_norm_ != nullptr) {
    mlp_post_norm_ = make_post_norm("mlp_post_norm");
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

// The sum of the mixers, side by side.
Placed DecoderLayer::mix(const Placed& hidden, const ForwardContext& context,
                         const std::vector<LayerCache*>& caches) const {
  const Placed input = normed(*mixer_norm_, hidden);
  const OffloadedActivations offloaded(offloads_mixers_, parameters_);
  Placed sum;
  for (size_t i = 0; i < mixers_.size(); ++i) {
    MixerCaches own;
    for (LayerCache* cache : caches) {
      own.push_back(cache->at(i).get());
    }
    const Placed one = mixers_[i]->forward(input, context, caches.empty() ? nullptr : &own);
    sum = i == 0 ? one : add(sum, one);
  }
  return sum;
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
                                  const std::vector<LayerCache*>& caches) const {
  std::optional<DroppedOutputs> dropped;
  if (drops_outputs_) {
    dropped.emplace();
  }
  const Placed mixed =
      mixers_.empty() ? hidden
                      : add_normed(hidden, mix(hidden, context, caches), mixer_post_norm_.get());
  if (mlp_norm_ == nullptr) {
    return {mixed, {}, {}};
  }
  const Placed input = normed(*mlp_norm_, mixed);
  if (mlp_ != nullptr) {
    return {add_normed(mixed, forward_mlp(input), mlp_post_norm_.get()), {}, {}};
  }
  MoeOutput output = forward_moe(input, context, memo);
  return {add_normed(mixed, output.hidden, mlp_post_norm_.get()), output.objective,
          output.statistics};
}

LayerCache DecoderLayer::new_cache() const {
  LayerCache caches;
  for (const auto& mixer : mixers_) {
    caches.push_back(mixer->new_cache());
  }
  return caches;
}

}  // namespace switchyard
