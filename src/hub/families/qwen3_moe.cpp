#include "hub/field_groups.h"

// Qwen3-30B-A3B, Qwen3-235B-A22B (modeling_qwen3_moe.py).
namespace switchyard {
ModelFamily qwen3_moe_family() {
  return {
      .model_type = "qwen3_moe",
      .architecture = "Qwen3MoeForCausalLM",
      .fields =
          joined<FieldRule>({decoder_fields({.vocab_size = 151936,
                                             .hidden_size = 2048,
                                             .num_layers = 24,
                                             .num_heads = 32,
                                             .num_kv_heads = 4,
                                             .max_position = 32768,
                                             .norm_epsilon = 1e-6}),
                             {{"intermediate_size", "model.ffn_hidden_size", 6144},
                              {"head_dim", "model.head_dim", nullptr, "0"},
                              {"attention_bias", "attention.qkv_bias", false},
                              {"attention_bias", "attention.output_bias", false},
                              {"num_experts", "moe.num_experts", 128, "", {"num_local_experts"}},
                              {"num_experts_per_tok", "moe.top_k", 8},
                              {"norm_topk_prob", "moe.renormalize", false},
                              {"moe_intermediate_size", "moe.ffn_hidden_size", 768}}}),
      .fixed_fields = {{"attention_dropout", 0.0, "dropout is not implemented"}},
      .fixed_settings = {{"attention.qk_norm", "head"}, {"moe.pre_softmax", "true"}},
      .groups = {rope_fields(10000), window_on_all_layers(), sparse_layers(), balance_loss(0.001)},
      .tensors = joined<TensorRule>({decoder_tensors(), qkv_bias_tensors(), output_bias_tensors(),
                                     qk_norm_tensors(), mlp_tensors(), expert_tensors()}),
      .dropped = decoder_dropped(),
  };
}

}  // namespace switchyard
