#include "hub/field_groups.h"

// Nemotron-3 8B, Nemotron-4 15B and 340B, Minitron (modeling_nemotron.py).
namespace switchyard {
namespace {

std::vector<TensorRule> ungated_mlp_tensors() {
  const std::string mlp = "model.layers.{layer}.mlp.";
  return {{mlp + "up_proj.weight", "layers.{layer}.mlp.up"},
          {mlp + "down_proj.weight", "layers.{layer}.mlp.down"},
          {mlp + "up_proj.bias", "layers.{layer}.mlp.up_bias"},
          {mlp + "down_proj.bias", "layers.{layer}.mlp.down_bias"}};
}

std::vector<TensorRule> norm_bias_tensors() {
  const std::string layer = "model.layers.{layer}.";
  return {{layer + "input_layernorm.bias", "layers.{layer}.mixer_norm.bias"},
          {layer + "post_attention_layernorm.bias", "layers.{layer}.mlp_norm.bias"},
          {"model.norm.bias", "final_norm.bias"}};
}

}  // namespace

ModelFamily nemotron_family() {
  return {
      .model_type = "nemotron",
      .architecture = "NemotronForCausalLM",
      .fields = joined<FieldRule>({decoder_fields({.vocab_size = 256000,
                                                   .hidden_size = 6144,
                                                   .num_layers = 32,
                                                   .num_heads = 48,
                                                   .num_kv_heads = nullptr,
                                                   .max_position = 4096,
                                                   .norm_epsilon = 1e-5,
                                                   .activation = "relu2",
                                                   .epsilon_field = "norm_eps"}),
                                   {{"intermediate_size", "model.ffn_hidden_size", 24576},
                                    {"head_dim", "model.head_dim", nullptr, "0"},
                                    {"attention_bias", "attention.qkv_bias", false},
                                    {"attention_bias", "attention.output_bias", false},
                                    {"mlp_bias", "model.mlp_bias", false}}}),
      .fixed_fields = {{"attention_dropout", 0.0, "dropout is not implemented"}},
      .fixed_settings = {{"model.norm", "layer"},
                         {"model.norm_plus_one", "true"},
                         {"model.gated_mlp", "false"}},
      .groups = {partial_rope_fields(10000, 0.5)},
      .tensors = joined<TensorRule>({decoder_tensors(), norm_bias_tensors(), qkv_bias_tensors(),
                                     output_bias_tensors(), ungated_mlp_tensors()}),
      .dropped = decoder_dropped(),
  };
}

}  // namespace switchyard
