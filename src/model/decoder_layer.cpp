#include "model/decoder_layer.h"

#include <ATen/ATen.h>

namespace switchyard {
namespace {

Placed add(const Placed& left, const Placed& right) {
  return {left.tensor + right.tensor, left.placement};
}

}  // namespace

DecoderLayer::DecoderLayer(const Scope& scope, const Config& config, const LayerSpec& spec)
    : attention_norm_(scope / "attention_norm", config.model, config.parallel.sequence_parallel),
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

LayerOutput DecoderLayer::forward(const Placed& hidden, const ForwardContext& context,
                                  RoutingMemo& memo, std::vector<KeyValueCache>* caches) const {
  const Placed attended =
      add(hidden, attention_.forward(attention_norm_.forward(hidden), context, caches));
  const Placed normed = mlp_norm_.forward(attended);
  if (mlp_ != nullptr) {
    return {add(attended, mlp_->forward(normed)), {}, {}};
  }
  MoeOutput output = moe_->forward(normed, context, memo);
  return {add(attended, output.hidden), output.objective, output.statistics};
}

}  // namespace switchyard
