#include "hub/field_groups.h"

// GLM-4.5, GLM-4.5-Air (modeling_glm4_moe.py).
namespace switchyard {
namespace {

// num_nextn_predict_layers: modules that foretell further tokens, of which transformers' class
// makes none.
FieldGroup prediction_layers() {
  return {[](HfConfig& fields, SettingValues&) {
            fields.find("num_nextn_predict_layers", {"num_mtp_layers"});
          },
          [](const Config&, nlohmann::json& fields) { fields["num_nextn_predict_layers"] = 0; }};
}

}  // namespace

ModelFamily glm4_moe_family() {
  return {
      .model_type = "glm4_moe",
      .architecture = "Glm4MoeForCausalLM",
      .fields = joined<FieldRule>(
          {decoder_fields({.vocab_size = 151552,
                           .hidden_size = 4096,
                           .num_layers = 46,
                           .num_heads = 96,
                           .num_kv_heads = 8,
                           .max_position = 131072,
                           .norm_epsilon = 1e-5}),
           {{"intermediate_size", "model.ffn_hidden_size", 10944},
            {"head_dim", "model.head_dim", nullptr, "0"},
            {"attention_bias", "attention.qkv_bias", false},
            {"n_routed_experts", "moe.num_experts", 128, "", {"num_local_experts"}},
            {"num_experts_per_tok", "moe.top_k", 8},
            {"norm_topk_prob", "moe.renormalize", true},
            {"moe_intermediate_size", "moe.ffn_hidden_size", 1408},
            {"routed_scaling_factor", "moe.scaling_factor", 1.0},
            {"n_group", "moe.num_groups", 1},
            {"topk_group", "moe.group_top_k", 1},
            {"first_k_dense_replace", "moe.first_dense_layers", 1}}}),
      .fixed_fields = {{"attention_dropout", 0.0, "dropout is not implemented"}},
      .fixed_settings = {{"moe.score_function", "sigmoid"}, {"moe.expert_bias", "true"}},
      .groups = {partial_rope_fields(10000, 0.5), query_norm(false),
                 shared_experts("n_shared_experts", 1), prediction_layers()},
      .tensors = joined<TensorRule>({decoder_tensors(), qkv_bias_tensors(), qk_norm_tensors(),
                                     mlp_tensors(), expert_tensors(), shared_experts_tensors(),
                                     expert_bias_tensors()}),
      .dropped = decoder_dropped(),
  };
}

}  // namespace switchyard
