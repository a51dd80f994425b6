#include "hub/field_groups.h"

// Mixtral 8x7B, 8x22B (modeling_mixtral.py).
namespace switchyard {
namespace {

// As transformers keeps them in memory.
std::vector<TensorRule> other_spellings() {
  std::vector<TensorRule> rules = expert_tensors();
  for (TensorRule& rule : rules) {
    rule.is_other_spelling = true;
  }
  return rules;
}

}  // namespace

ModelFamily mixtral_family() {
  return {
      .model_type = "mixtral",
      .architecture = "MixtralForCausalLM",
      .fields =
          joined<FieldRule>({decoder_fields({.vocab_size = 32000,
                                             .hidden_size = 4096,
                                             .num_layers = 32,
                                             .num_heads = 32,
                                             .num_kv_heads = 8,
                                             .max_position = 131072,
                                             .norm_epsilon = 1e-5}),
                             {{"intermediate_size", "moe.ffn_hidden_size", 14336},
                              {"head_dim", "model.head_dim", nullptr, "0"},
                              {"sliding_window", "attention.window", nullptr, "0"},
                              {"num_local_experts", "moe.num_experts", 8, "", {"num_experts"}},
                              {"num_experts_per_tok", "moe.top_k", 2}}}),
      .fixed_fields = {{"attention_dropout", 0.0, "dropout is not implemented"},
                       {"router_jitter_noise", 0.0, "it would also disturb the experts' input"}},
      .fixed_settings = {{"moe.pre_softmax", "false"}},
      .groups = {rope_fields(1000000), balance_loss(0.001)},
      .tensors =
          joined<TensorRule>({decoder_tensors(), block_sparse_moe_tensors(), other_spellings()}),
      .dropped = decoder_dropped(),
  };
}

}  // namespace switchyard
