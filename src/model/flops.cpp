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

// Multiply-adds of a token in the projections of one attention layer.
double projections_per_token(const Config& config) {
  const ModelConfig& model = config.model;
  const MlaConfig& mla = config.mla;
  const int64_t hidden = model.hidden_size;
  const int64_t heads = model.num_attention_heads;
  if (!mla.is_used()) {
    return static_cast<double>(hidden * 2 * (heads + model.query_groups()) * model.head_size());
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
    const int64_t inner = moe.top_k * moe.ffn_hidden_size + moe.shared_expert_ffn_hidden_size;
    const bool has_gate = moe.shared_expert_gate && moe.shared_expert_ffn_hidden_size > 0;
    return matrices * hidden * static_cast<double>(inner) +
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
