#include "hub/field_groups.h"

// MiniMax-M2 (modeling_minimax_m2.py).
namespace switchyard {
namespace {

void read_rope_with_dim(HfConfig& fields, SettingValues& settings) {
  read_rope(fields, settings, {5e6, read_rotary_dim(fields, settings).value_or(1)});
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
