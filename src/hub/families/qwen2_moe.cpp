#include "hub/field_groups.h"

// Qwen1.5-MoE, Qwen2-57B-A14B (modeling_qwen2_moe.py).
namespace switchyard {
ModelFamily qwen2_moe_family() {
  return {
      .model_type = "qwen2_moe",
      .architecture = "Qwen2MoeForCausalLM",
      .fields = joined<FieldRule>(
          {decoder_fields({.vocab_size = 151936,
                           .hidden_size = 2048,
                           .num_layers = 24,
                           .num_heads = 16,
                           .num_kv_heads = 16,
                           .max_position = 32768,
                           .norm_epsilon = 1e-6}),
           {{"intermediate_size", "model.ffn_hidden_size", 5632},
            {"head_dim", "model.head_dim", nullptr, "0"},
            {"qkv_bias", "attention.qkv_bias", true},
            {"num_experts", "moe.num_experts", 60, "", {"num_local_experts"}},
            {"num_experts_per_tok", "moe.top_k", 4},
            {"norm_topk_prob", "moe.renormalize", false},
            {"moe_intermediate_size", "moe.ffn_hidden_size", 1408},
            {"shared_expert_intermediate_size", "moe.shared_expert_ffn_hidden_size", 5632}}}),
      .fixed_fields = {{"attention_dropout", 0.0, "dropout is not implemented"}},
      .fixed_settings = {{"moe.pre_softmax", "true"}, {"moe.shared_expert_gate", "true"}},
      .groups = {rope_fields(10000), window_on_even_layers(), sparse_layers(), balance_loss(0.001)},
      .tensors = joined<TensorRule>({decoder_tensors(), qkv_bias_tensors(), mlp_tensors(),
                                     expert_tensors(), gated_shared_expert_tensors()}),
      .dropped = decoder_dropped(),
  };
}

}  // namespace switchyard
