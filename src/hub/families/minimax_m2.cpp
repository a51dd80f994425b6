#include <fmt/format.h>

#include "base/error.h"
#include "hub/field_groups.h"

// MiniMax-M2 (modeling_minimax_m2.py).
namespace switchyard {
namespace {

// The share of a head that is rotated, in older files as a number of features.
void read_rope_with_dim(HfConfig& fields, SettingValues& settings) {
  constexpr double kBase = 5e6;
  double share = 1;
  if (const nlohmann::json* dim = fields.find("rotary_dim"); dim != nullptr && !dim->is_null()) {
    const int64_t head_dim = whole_value(settings, "model.head_dim");
    check<ConfigError>(dim->is_number_integer() && *dim > 0 && *dim <= head_dim,
                       "{}: rotary_dim is {}: expected a number from 1 to head_dim ({})",
                       fields.source(), dim->dump(), head_dim);
    share = dim->get<double>() / static_cast<double>(head_dim);
  }
  read_rope(fields, settings, {kBase, share});
}

std::vector<TensorRule> expert_bias() {
  return {
      {in_layer("block_sparse_moe.e_score_correction_bias"), logical("moe.router.expert_bias")}};
}

}  // namespace

ModelFamily minimax_m2_family() {
  return {
      .model_type = "minimax_m2",
      .architecture = "MiniMaxM2ForCausalLM",
      .fields =
          joined<FieldRule>({decoder_fields({.vocab_size = 200064,
                                             .hidden_size = 3072,
                                             .num_layers = 62,
                                             .num_heads = 48,
                                             .num_kv_heads = 8,
                                             .max_position = 196608,
                                             .norm_epsilon = 1e-6}),
                             {{"intermediate_size", "moe.ffn_hidden_size", 1536},
                              {"head_dim", "model.head_dim", 128},
                              {"num_local_experts", "moe.num_experts", 256, "", {"num_experts"}},
                              {"num_experts_per_tok", "moe.top_k", 8}}}),
      .fixed_fields = {{"attention_dropout", 0.0, "dropout is not implemented"},
                       {"router_jitter_noise", 0.0, "it would also disturb the experts' input"}},
      .fixed_settings = {{"attention.qk_norm", "full"},
                         {"moe.score_function", "sigmoid"},
                         {"moe.renormalize", "true"},
                         {"moe.expert_bias", "true"}},
      .groups = {{read_rope_with_dim, write_rope}, balance_loss(0.001)},
      .tensors = joined<TensorRule>(
          {decoder_tensors(), qk_norm_tensors(), block_sparse_moe_tensors(), expert_bias()}),
      .dropped = decoder_dropped(),
  };
}

}  // namespace switchyard
