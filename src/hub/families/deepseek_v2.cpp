#include "base/error.h"
#include "config/values.h"
#include "hub/deepseek_rows.h"
#include "hub/field_groups.h"

// DeepSeek-V2, DeepSeek-V2-Lite (modeling_deepseek_v2.py).
namespace switchyard {
namespace {

// topk_method: whether n_group and topk_group limit the choice of experts.
FieldGroup groups_of_experts() {
  return {[](HfConfig& fields, SettingValues& settings) {
            const auto method = fields.get("topk_method", std::string("greedy"));
            check<ConfigError>(method == "greedy" || method == "group_limited_greedy",
                               "{}: topk_method is \"{}\"; known are: greedy, group_limited_greedy",
                               fields.source(), method);
            const int64_t num_groups = fields.get("n_group", int64_t{0});
            const int64_t group_top_k = fields.get("topk_group", int64_t{0});
            const bool is_limited = method == "group_limited_greedy";
            check<ConfigError>(!is_limited || (num_groups > 0 && group_top_k > 0),
                               "{}: n_group is {} and topk_group is {}: topk_method "
                               "group_limited_greedy needs numbers from 1 on",
                               fields.source(), num_groups, group_top_k);
            set_value(settings, "moe.num_groups", print_value(is_limited ? num_groups : 1));
            set_value(settings, "moe.group_top_k", print_value(is_limited ? group_top_k : 1));
          },
          [](const Config& config, nlohmann::json& fields) {
            const MoeConfig& moe = config.moe;
            fields["topk_method"] = moe.has_groups() ? "group_limited_greedy" : "greedy";
            fields["n_group"] = moe.num_groups;
            fields["topk_group"] = moe.group_top_k;
          }};
}

}  // namespace

ModelFamily deepseek_v2_family() {
  return {
      .model_type = "deepseek_v2",
      .architecture = "DeepseekV2ForCausalLM",
      .fields =
          joined<FieldRule>({decoder_fields({.vocab_size = 102400,
                                             .hidden_size = 4096,
                                             .num_layers = 32,
                                             .num_heads = 32,
                                             .num_kv_heads = nullptr,
                                             .max_position = 2048,
                                             .norm_epsilon = 1e-6}),
                             latent_attention_fields(),
                             {{"intermediate_size", "model.ffn_hidden_size", 11008},
                              {"moe_intermediate_size", "moe.ffn_hidden_size", 1407},
                              {"n_routed_experts", "moe.num_experts", 64, "", {"num_experts"}},
                              {"num_experts_per_tok", "moe.top_k"},
                              {"first_k_dense_replace", "moe.first_dense_layers", 0},
                              {"routed_scaling_factor", "moe.scaling_factor", 1.0}}}),
      .fixed_fields = {{"attention_dropout", 0.0, "dropout is not implemented"},
                       {"attention_bias", false, "latent attention has no biases here"},
                       {"mlp_bias", false, "transformers' class has it in shared experts too"},
                       {"norm_topk_prob", false, "transformers' class does not look at it"},
                       {"scoring_func", "softmax", "transformers' class knows no other"},
                       {"moe_layer_freq", 1, "transformers' class knows no other"},
                       {"ep_size", 1, "it says how another program lays out the experts"}},
      .fixed_settings = {{"rope.interleaved", "true"},
                         {"moe.pre_softmax", "true"},
                         {"moe.group_score", "max"}},
      .groups = {latent_attention_widths(), rope_fields(10000), groups_of_experts(),
                 shared_experts("n_shared_experts", 2, 1), sequence_balance_loss()},
      .tensors = joined<TensorRule>({decoder_tensors(), latent_attention_tensors(), mlp_tensors(),
                                     expert_tensors(), shared_experts_tensors()}),
      .dropped = decoder_dropped(),
  };
}

}  // namespace switchyard
