#include "hub/deepseek_rows.h"
#include "hub/field_groups.h"

// DeepSeek-V3 and R1, Moonlight, Kimi-K2 (modeling_deepseek_v3.py).
namespace switchyard {
namespace {

std::vector<TensorRule> layer_tensors() {
  return joined<TensorRule>({decoder_tensors(), latent_attention_tensors(), mlp_tensors(),
                             expert_tensors(), expert_bias_tensors(), shared_experts_tensors()});
}

}  // namespace

ModelFamily deepseek_v3_family() {
  return {
      .model_type = "deepseek_v3",
      .architecture = "DeepseekV3ForCausalLM",
      .other_model_types = {"kimi_k2"},
      .fields = joined<FieldRule>(
          {decoder_fields({.vocab_size = 129280,
                           .hidden_size = 7168,
                           .num_layers = 61,
                           .num_heads = 128,
                           .num_kv_heads = 128,
                           .max_position = 4096,
                           .norm_epsilon = 1e-6}),
           latent_attention_fields(),
           {{"rope_interleave", "rope.interleaved", true},
            {"intermediate_size", "model.ffn_hidden_size", 18432},
            {"moe_intermediate_size", "moe.ffn_hidden_size", 2048},
            {"n_routed_experts", "moe.num_experts", 256, "", {"num_local_experts"}},
            {"num_experts_per_tok", "moe.top_k", 8},
            {"first_k_dense_replace", "moe.first_dense_layers", 3},
            {"n_group", "moe.num_groups", 8},
            {"topk_group", "moe.group_top_k", 4},
            {"norm_topk_prob", "moe.renormalize", true},
            {"routed_scaling_factor", "moe.scaling_factor", 2.5},
            {"num_nextn_predict_layers", "mtp.num_layers", 1, "", {"num_mtp_layers"}}}}),
      .fixed_fields = {{"attention_dropout", 0.0, "dropout is not implemented"},
                       {"attention_bias", false, "latent attention has no biases here"},
                       {"scoring_func", "sigmoid", "transformers' class knows no other"},
                       {"topk_method", "noaux_tc", "transformers' class knows no other"},
                       {"moe_layer_freq", 1, "transformers' class knows no other"},
                       {"ep_size", 1, "it says how another program lays out the experts"}},
      .fixed_settings = {{"moe.score_function", "sigmoid"},
                         {"moe.expert_bias", "true"},
                         {"moe.group_score", "top2_sum"}},
      .groups = {latent_attention_widths(), rope_fields(10000),
                 shared_experts("n_shared_experts", 1, 1), sequence_balance_loss()},
      .tensors = joined<TensorRule>(
          {layer_tensors(), prediction_tensors(layer_tensors(), "shared_head.norm.weight")}),
      .dropped = joined<DroppedTensor>({decoder_dropped(), prediction_dropped()}),
  };
}

}  // namespace switchyard
