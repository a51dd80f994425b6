#include "model/flops.h"

#include "config/mixer_sizes.h"
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

// Multiply-adds per token.
double of_mamba1(const Config& config) {
  const int64_t inner = mamba1_channels(config);
  const int64_t rank = mamba1_dt_rank(config);
  const int64_t state = config.mamba.state_size;
  return static_cast<double>(3 * config.model.hidden_size * inner + inner * (rank + 2 * state) +
                             rank * inner + 2 * inner * state);
}

double of_mamba2(const Config& config) {
  const MambaConfig& mamba = config.mamba;
  const int64_t heads = mamba2_heads(config);
  const int64_t inner = heads * mamba.head_dim;
  const int64_t projected = 2 * inner + 2 * mamba.num_groups * mamba.state_size + heads;
  return static_cast<double>(config.model.hidden_size * (projected + inner) +
                             2 * inner * mamba.state_size);
}

// The delta rule reads the state with the key, writes it, and reads it with the query.
double of_delta_net(const Config& config) {
  const DeltaNetConfig& sizes = config.delta_net;
  const int64_t values = sizes.num_value_heads * sizes.value_head_dim;
  const int64_t projected =
      2 * sizes.num_key_heads * sizes.key_head_dim + 2 * values + 2 * sizes.num_value_heads;
  return static_cast<double>(config.model.hidden_size * (projected + values) +
                             3 * values * sizes.key_head_dim);
}

// Multiply-adds of a token in the projections of one attention layer.
double projections_per_token(const Config& config) {
  const ModelConfig& model = config.model;
  const MlaConfig& mla = config.mla;
  const int64_t hidden = model.hidden_size;
  const int64_t heads = model.num_attention_heads;
  if (!mla.is_used()) {
    const int64_t gates = config.attention.output_gate ? heads : 0;
    return static_cast<double>(hidden * (2 * (heads + model.query_groups()) + gates) *
                               model.head_size());
  }
  const int64_t query = heads * (mla.qk_nope_head_dim + mla.qk_rope_head_dim);
  const int64_t queries = mla.q_lora_rank > 0 ? mla.q_lora_rank * (hidden + query) : hidden * query;
  const int64_t keys_values = hidden * (mla.kv_lora_rank + mla.qk_rope_head_dim) +
                              mla.kv_lora_rank * heads * (mla.qk_nope_head_dim + mla.v_head_dim);
  return static_cast<double>(queries + keys_values + heads * mla.v_head_dim * hidden);
}

// Features of all heads that meet a key, and then its value.
double attended_features(const Config& config) {
  const MlaConfig& mla = config.mla;
  const int64_t per_head = mla.is_used()
                               ? mla.qk_nope_head_dim + mla.qk_rope_head_dim + mla.v_head_dim
                               : 2 * config.model.head_size();
  return static_cast<double>(config.model.num_attention_heads * per_head);
}

}  // namespace

double training_flops(const Config& config, double num_tokens, double sequence_length) {
  const ModelConfig& model = config.model;
  const auto hidden = static_cast<double>(model.hidden_size);
  const auto matrices = static_cast<double>(model.mlp_function().num_inputs() + 1);

  // Multiply-adds per token.
  const double projections = projections_per_token(config);
  const double attended = attended_features(config);
  const auto scores = [&](const LayerSpec& layer) {  // with keys, then with values
    return attended * keys_per_token(sequence_length, layer.attention_window);
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
  const double logits = hidden * static_cast<double>(model.vocab_size);
  std::vector<LayerSpec> layers = describe_layers(config);
  double per_token = logits;
  if (config.mtp.loss_coeff > 0) {  // each module has a layer like the last
    const auto num_modules = static_cast<size_t>(config.mtp.num_layers);
    per_token += static_cast<double>(num_modules) * (2 * hidden * hidden + logits);
    layers.insert(layers.end(), num_modules, LayerSpec(layers.back()));
  }
  for (const LayerSpec& layer : layers) {
    if (layer.kinds.has(MixerKind::kAttention)) {
      per_token += projections + scores(layer);
    }
    if (layer.kinds.has(MixerKind::kMamba1)) {
      per_token += of_mamba1(config);
    }
    if (layer.kinds.has(MixerKind::kMamba2)) {
      per_token += of_mamba2(config);
    }
    if (layer.kinds.has(MixerKind::kDeltaNet)) {
      per_token += of_delta_net(config);
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
