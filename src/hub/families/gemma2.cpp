#include "hub/field_groups.h"
#include "hub/gemma_rows.h"

// Gemma 2 (modeling_gemma2.py, arXiv:2408.00118).
namespace switchyard {
namespace {

FieldGroup alternating_windows() {
  return {[](HfConfig& fields, SettingValues& settings) {
            read_windows_by_period(fields, settings, 4096, 2);
          },
          write_layer_types};
}

}  // namespace

ModelFamily gemma2_family() {
  return {
      .model_type = "gemma2",
      .architecture = "Gemma2ForCausalLM",
      .fields = joined<FieldRule>({gemma_fields({.vocab_size = 256000,
                                                 .hidden_size = 2304,
                                                 .num_layers = 26,
                                                 .num_heads = 8,
                                                 .num_kv_heads = 4,
                                                 .max_position = 8192,
                                                 .ffn_hidden_size = 9216}),
                                   {{"final_logit_softcapping", "model.logit_softcap", 30.0, "0"},
                                    {"attn_logit_softcapping", "attention.softcap", 50.0, "0"}}}),
      .fixed_fields = gemma_fixed_fields(),
      .fixed_settings = {{"model.norm_plus_one", "true"}, {"model.post_norms", "true"}},
      .groups = {rope_fields(10000), alternating_windows(), query_scalar(), scaled_embedding()},
      .tensors = post_normed_gemma_tensors(),
      .dropped = decoder_dropped(),
  };
}

}  // namespace switchyard
