#include "model/flops.h"

#include "model/layer_spec.h"

namespace switchyard {
namespace {

// Mean over the tokens of a sequence: token i sees i + 1 tokens, or the window where that is less.
double keys_per_token(double sequence_length, int64_t window) {
  const auto seen = static_cast<double>(window);
  if (window == 0 || seen >= sequence_length) {
    return (sequence_length + 1) / 2;
  }
  return seen - seen * (seen - 1) / 2 / sequence_length;
}

}  // namespace

double training_flops(const Config& config, double num_tokens, double sequence_length) {
  const ModelConfig& model = config.model;
  const auto hidden = static_cast<double>(model.hidden_size);
  const auto query = static_cast<double>(model.num_attention_heads * model.head_size());
  const auto key_value = static_cast<double>(2 * model.query_groups() * model.head_size());
  const auto matrices = static_cast<double>(model.mlp_function().num_inputs() + 1);

  // Multiply-adds per token.
  const double projections = hidden * (query + key_value) + query * hidden;
  const auto scores = [&](const LayerSpec& layer) {  // with keys, then with values
    return 2 * query * keys_per_token(sequence_length, layer.attention_window);
  };
  const double dense = matrices * hidden * static_cast<double>(model.ffn_hidden_size);
  const auto experts = [&](const MoeConfig& moe) {
    const int64_t routed = moe.top_k * moe.ffn_hidden_size;
    const bool has_gate = moe.shared_expert_gate && moe.shared_expert_ffn_hidden_size > 0;
    const bool has_latent = moe.latent_size > 0;
    const auto latent = static_cast<double>(moe.latent_size);
    return matrices * (has_latent ? latent : hidden) * static_cast<double>(routed) +
           matrices * hidden * static_cast<double>(moe.shared_expert_ffn_hidden_size) +
           2 * hidden * latent +  // to and from it
           hidden * static_cast<double>(moe.num_experts + (has_gate ? 1 : 0));
  };
  double per_token = hidden * static_cast<double>(model.vocab_size);
  for (const LayerSpec& layer : describe_layers(config)) {
    if (layer.kinds.has(MixerKind::kAttention)) {
      per_token += projections + scores(layer);
    }
    switch (layer.kinds.feed_forward) {
      case FeedForward::kNone:
        break;
      case FeedForward::kDense:
        per_token += dense;
        break;
      case FeedForward::kMoe:
        per_token += experts(layer.moe);
        break;
    }
  }
  constexpr double kPerMultiplyAdd = 2;
  constexpr double kForwardAndBackward = 3;
  return kPerMultiplyAdd * kForwardAndBackward * per_token * num_tokens;
}

}  // namespace switchyard
