#include "hub/field_groups.h"

// Llama 2, 3, 3.1, 3.2, 3.3 (modeling_llama.py).
namespace switchyard {
ModelFamily llama_family() {
  return {
      .model_type = "llama",
      .architecture = "LlamaForCausalLM",
      .fields = joined<FieldRule>({decoder_fields({.vocab_size = 32000,
                                                   .hidden_size = 4096,
                                                   .num_layers = 32,
                                                   .num_heads = 32,
                                                   .num_kv_heads = nullptr,
                                                   .max_position = 2048,
                                                   .norm_epsilon = 1e-6}),
                                   {{"intermediate_size", "model.ffn_hidden_size", 11008},
                                    {"head_dim", "model.head_dim", nullptr, "0"},
                                    {"attention_bias", "attention.qkv_bias", false},
                                    {"attention_bias", "attention.output_bias", false},
                                    {"mlp_bias", "model.mlp_bias", false}}}),
      .fixed_fields = {{"attention_dropout", 0.0, "dropout is not implemented"}},
      .fixed_settings = {},
      .groups = {rope_fields(10000)},
      .tensors = joined<TensorRule>({decoder_tensors(), qkv_bias_tensors(), output_bias_tensors(),
                                     mlp_tensors(), mlp_bias_tensors()}),
      .dropped = decoder_dropped(),
  };
}

}  // namespace switchyard
