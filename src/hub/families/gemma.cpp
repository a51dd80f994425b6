#include "hub/field_groups.h"
#include "hub/gemma_rows.h"

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
      .fields = gemma_fields({.vocab_size = 256000,
                              .hidden_size = 3072,
                              .num_layers = 28,
                              .num_heads = 16,
                              .num_kv_heads = 16,
                              .max_position = 8192,
                              .ffn_hidden_size = 24576,
                              .activation_field = "hidden_act"}),
      .fixed_fields = gemma_fixed_fields(),
      .fixed_settings = {{"model.norm_plus_one", "true"}},
      .groups = {rope_fields(10000), activation(), scaled_embedding()},
      .tensors = gemma_tensors(),
      .dropped = decoder_dropped(),
  };
}

}  // namespace switchyard
