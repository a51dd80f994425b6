#include "hub/field_groups.h"

// OLMoE-1B-7B (modeling_olmoe.py).
namespace switchyard {
ModelFamily olmoe_family() {
  return {
      .model_type = "olmoe",
      .architecture = "OlmoeForCausalLM",
      .fields =
          joined<FieldRule>({decoder_fields({.vocab_size = 50304,
                                             .hidden_size = 2048,
                                             .num_layers = 16,
                                             .num_heads = 16,
                                             .num_kv_heads = nullptr,
                                             .max_position = 4096,
                                             .norm_epsilon = 1e-5}),
                             {{"intermediate_size", "moe.ffn_hidden_size", 2048},
                              {"head_dim", "model.head_dim", nullptr, "0"},
                              {"attention_bias", "attention.qkv_bias", false},
                              {"attention_bias", "attention.output_bias", false},
                              {"clip_qkv", "attention.qkv_clip", nullptr, "0"},
                              {"num_experts", "moe.num_experts", 64, "", {"num_local_experts"}},
                              {"num_experts_per_tok", "moe.top_k", 8},
                              {"norm_topk_prob", "moe.renormalize", false}}}),
      .fixed_fields = {{"attention_dropout", 0.0, "dropout is not implemented"}},
      .fixed_settings = {{"attention.qk_norm", "full"}, {"moe.pre_softmax", "true"}},
      .groups = {rope_fields(10000), balance_loss(0.01)},
      .tensors = joined<TensorRule>({decoder_tensors(), qkv_bias_tensors(), output_bias_tensors(),
                                     qk_norm_tensors(), expert_tensors()}),
      .dropped = decoder_dropped(),
  };
}

}  // namespace switchyard
