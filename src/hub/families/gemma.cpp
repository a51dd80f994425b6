#include "hub/field_groups.h"

// Gemma 2B and 7B (modeling_gemma.py).
namespace switchyard {
namespace {

// Both are the tanh approximation: "gelu" is what the first files said and did not mean.
FieldGroup activation() {
  return {[](HfConfig& fields, SettingValues& settings) {
            fields.mark_read("hidden_activation");  // of older files, which the class does not read
            if (fields.get("hidden_act", std::string("gelu_pytorch_tanh")) == "gelu") {
              set_value(settings, "model.activation", "gelu_tanh");
            }
          },
          [](const Config&, nlohmann::json&) {}};
}

}  // namespace

ModelFamily gemma_family() {
  return {
      .model_type = "gemma",
      .architecture = "GemmaForCausalLM",
      .fields = joined<FieldRule>({decoder_fields({.vocab_size = 256000,
                                                   .hidden_size = 3072,
                                                   .num_layers = 28,
                                                   .num_heads = 16,
                                                   .num_kv_heads = 16,
                                                   .max_position = 8192,
                                                   .norm_epsilon = 1e-6,
                                                   .tie_embeddings = true,
                                                   .activation = "gelu_pytorch_tanh"}),
                                   {{"intermediate_size", "model.ffn_hidden_size", 24576},
                                    {"head_dim", "model.head_dim", 256},
                                    {"attention_bias", "attention.qkv_bias", false},
                                    {"attention_bias", "attention.output_bias", false}}}),
      .fixed_fields = {{"attention_dropout", 0.0, "dropout is not implemented"},
                       {"use_bidirectional_attention", false, "attention is causal here"}},
      .fixed_settings = {{"model.norm_plus_one", "true"}},
      .groups = {rope_fields<10000>(), activation(), scaled_embedding()},
      .tensors = joined<TensorRule>(
          {decoder_tensors(), qkv_bias_tensors(), output_bias_tensors(), mlp_tensors()}),
      .dropped = decoder_dropped(),
  };
}

}  // namespace switchyard
