#include "hub/field_groups.h"

// Qwen3, dense (modeling_qwen3.py).
namespace switchyard {
ModelFamily qwen3_family() {
  return {
      .model_type = "qwen3",
      .architecture = "Qwen3ForCausalLM",
      .fields = joined<FieldRule>({decoder_fields({.vocab_size = 151936,
                                                   .hidden_size = 4096,
                                                   .num_layers = 32,
                                                   .num_heads = 32,
                                                   .num_kv_heads = 32,
                                                   .max_position = 32768,
                                                   .norm_epsilon = 1e-6}),
                                   {{"intermediate_size", "model.ffn_hidden_size", 22016},
                                    {"head_dim", "model.head_dim", 128},
                                    {"attention_bias", "attention.qkv_bias", false},
                                    {"attention_bias", "attention.output_bias", false}}}),
      .fixed_fields = {{"attention_dropout", 0.0, "dropout is not implemented"}},
      .fixed_settings = {{"attention.qk_norm", "head"}},
      .groups = {rope_fields(10000), window_from_layer_on()},
      .tensors = joined<TensorRule>({decoder_tensors(), qkv_bias_tensors(), output_bias_tensors(),
                                     qk_norm_tensors(), mlp_tensors()}),
      .dropped = decoder_dropped(),
  };
}

}  // namespace switchyard
