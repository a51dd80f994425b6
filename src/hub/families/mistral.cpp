#include "hub/field_groups.h"

// Mistral 7B and its kin (modeling_mistral.py).
namespace switchyard {
ModelFamily mistral_family() {
  return {
      .model_type = "mistral",
      .architecture = "MistralForCausalLM",
      .fields = joined<FieldRule>({decoder_fields({.vocab_size = 32000,
                                                   .hidden_size = 4096,
                                                   .num_layers = 32,
                                                   .num_heads = 32,
                                                   .num_kv_heads = 8,
                                                   .max_position = 131072,
                                                   .norm_epsilon = 1e-6}),
                                   {{"intermediate_size", "model.ffn_hidden_size", 14336},
                                    {"head_dim", "model.head_dim", nullptr, "0"},
                                    {"sliding_window", "attention.window", 4096, "0"}}}),
      .fixed_fields = {{"attention_dropout", 0.0, "dropout is not implemented"}},
      .fixed_settings = {},
      .groups = {rope_fields(10000)},
      .tensors = joined<TensorRule>({decoder_tensors(), mlp_tensors()}),
      .dropped = decoder_dropped(),
  };
}

}  // namespace switchyard
