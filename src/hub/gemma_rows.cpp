#include "hub/gemma_rows.h"

#include <cmath>

#include "base/error.h"
#include "config/values.h"
#include "hub/field_groups.h"

namespace switchyard {

std::vector<FieldRule> gemma_fields(const GemmaStandards& standards) {
  return joined<FieldRule>(
      {decoder_fields({.vocab_size = standards.vocab_size,
                       .hidden_size = standards.hidden_size,
                       .num_layers = standards.num_layers,
                       .num_heads = standards.num_heads,
                       .num_kv_heads = standards.num_kv_heads,
                       .max_position = standards.max_position,
                       .norm_epsilon = 1e-6,
                       .tie_embeddings = true,
                       .activation = "gelu_pytorch_tanh",
                       .activation_field = standards.activation_field}),
       {{"intermediate_size", "model.ffn_hidden_size", standards.ffn_hidden_size},
        {"head_dim", "model.head_dim", 256},
        {"attention_bias", "attention.qkv_bias", false},
        {"attention_bias", "attention.output_bias", false}}});
}

std::vector<FixedField> gemma_fixed_fields() {
  return {{"attention_dropout", 0.0, "dropout is not implemented"},
          {"use_bidirectional_attention", false, "attention is causal here"}};
}

FieldGroup scaled_embedding() {
  return {[](HfConfig&, SettingValues& settings) {
            const auto hidden = static_cast<double>(whole_value(settings, "model.hidden_size"));
            set_value(settings, "multipliers.embedding", print_value(std::sqrt(hidden)));
          },
          [](const Config&, nlohmann::json&) {}};
}

FieldGroup query_scalar() {
  return {[](HfConfig& fields, SettingValues& settings) {
            const auto scalar = fields.get("query_pre_attn_scalar", int64_t{256});
            check<ConfigError>(scalar > 0, "{}: query_pre_attn_scalar is {}: expected 1 or more",
                               fields.source(), scalar);
            set_value(settings, "attention.scale",
                      print_value(1 / std::sqrt(static_cast<double>(scalar))));
          },
          [](const Config& config, nlohmann::json& fields) {
            const double scale = config.attention.scale;
            fields["query_pre_attn_scalar"] = std::llround(1 / (scale * scale));
          }};
}

std::vector<TensorRule> gemma_tensors() {
  return joined<TensorRule>(
      {decoder_tensors(), qkv_bias_tensors(), output_bias_tensors(), mlp_tensors()});
}

std::vector<TensorRule> post_normed_gemma_tensors() {
  std::vector<TensorRule> rules = gemma_tensors();
  for (TensorRule& rule : rules) {
    if (rule.logical == logical("mlp_norm.weight")) {
      rule.tensor = in_layer("pre_feedforward_layernorm.weight");
    }
  }
  rules.push_back({in_layer("post_attention_layernorm.weight"), logical("mixer_post_norm.weight")});
  rules.push_back({in_layer("post_feedforward_layernorm.weight"), logical("mlp_post_norm.weight")});
  return rules;
}

}  // namespace switchyard
