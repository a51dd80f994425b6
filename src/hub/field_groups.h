#pragma once

#include <optional>

#include "hub/family.h"

namespace switchyard {

// Fields of config.json that several families share and that mean something only together. The
// meaning is that of transformers 5.24.

// Rotary positions: rope_parameters, or the older rope_theta and rope_scaling
// (modeling_rope_utils.py), with what the family takes where the file names none. `partial_factor`
// 0: transformers' class rotates whole heads, whatever the file says.
struct RopeStandards {
  double base = 10000;
  double partial_factor = 0;
};
void read_rope(HfConfig& fields, SettingValues& settings, const RopeStandards& standards);
void write_rope(const Config& config, nlohmann::json& fields);
FieldGroup rope_fields(double base);
FieldGroup partial_rope_fields(double base, double partial_factor);

// rotary_dim, the share of a head that is rotated as older files have it: a number of features.
// `model.head_dim` must have been read. None where the file does not name it.
std::optional<double> read_rotary_dim(HfConfig& fields, const SettingValues& settings);

// use_qk_norm: whether queries and keys are normalised head by head.
FieldGroup query_norm(bool standard);

// use_sliding_window, sliding_window, max_window_layers, layer_types: which layers attend to a
// window when the file does not list them.
FieldGroup window_from_layer_on();   // Qwen2, Qwen3: from max_window_layers on
FieldGroup window_on_even_layers();  // Qwen2-MoE: every second layer below max_window_layers
FieldGroup window_on_all_layers();   // Qwen3-MoE

// sliding_window and layer_types of families that use windows wherever layers have them. Where the
// types are not listed, every layer has one but each `period`-th.
void read_windows_by_period(HfConfig& fields, SettingValues& settings, int64_t standard_window,
                            int64_t period);
void write_layer_types(const Config& config, nlohmann::json& fields);

// The number of shared experts, `least` or more: they are one, of `number` times the width of a
// routed one, which must have been read. `standard` is the number where the file names none.
FieldGroup shared_experts(const std::string& field, int64_t standard, int64_t least = 0);

// mlp_only_layers and decoder_sparse_step: which layers have experts (Qwen2-MoE, Qwen3-MoE).
FieldGroup sparse_layers();

// router_aux_loss_coef. transformers averages over layers and its balanced value is top_k; ours is
// summed over layers and 1 when balanced: coefficient x top_k / MoE layers gives the same loss when
// balanced. `standard` is the family's value where the file names none.
FieldGroup balance_loss(double standard);

// Fields that the family's class has and does not follow: read, and not written.
FieldGroup unused_fields(const std::vector<std::string>& names);

// --- Rows that all families have

// vocab_size, hidden_size ... in transformers' standard values for the family.
struct DecoderStandards {
  int64_t vocab_size, hidden_size, num_layers, num_heads;
  nlohmann::json num_kv_heads;  // null: as many as heads
  int64_t max_position;
  double norm_epsilon;
  bool tie_embeddings = false;
  std::string activation = "silu";
  std::string activation_field = "hidden_act";
  std::string epsilon_field = "rms_norm_eps";
};
std::vector<FieldRule> decoder_fields(const DecoderStandards& standards);

std::vector<std::pair<std::string, std::string>> activation_words();

// A name within a layer, in the files and in the logical model.
std::string in_layer(const std::string& name);  // "model.layers.{layer}.NAME"
std::string logical(const std::string& name);   // "layers.{layer}.NAME"

// A setting of what has been read.
void set_value(SettingValues& settings, const std::string& name, const std::string& value);
int64_t whole_value(const SettingValues& settings, const std::string& name);

// Embedding, norms, attention projections and head, as Llama names them, and what else its files
// may hold.
std::vector<TensorRule> decoder_tensors();
std::vector<TensorRule> qkv_bias_tensors();
std::vector<TensorRule> output_bias_tensors();
std::vector<TensorRule> qk_norm_tensors();
// mlp.gate_proj, mlp.up_proj and mlp.down_proj of dense layers.
std::vector<TensorRule> mlp_tensors();
std::vector<TensorRule> mlp_bias_tensors();
// The same of each expert, with the names of Qwen; mlp.gate is the router.
std::vector<TensorRule> expert_tensors();
// mlp.gate.e_score_correction_bias (DeepSeek-V3, GLM-4.5).
std::vector<TensorRule> expert_bias_tensors();
// mlp.shared_expert.gate_proj ... and mlp.shared_expert_gate (Qwen).
std::vector<TensorRule> gated_shared_expert_tensors();
// mlp.shared_experts.gate_proj ...
std::vector<TensorRule> shared_experts_tensors();
// block_sparse_moe.gate and block_sparse_moe.experts.{expert}.w1, w3 and w2 (Mixtral, MiniMax).
std::vector<TensorRule> block_sparse_moe_tensors();
std::vector<DroppedTensor> decoder_dropped();

// One list out of several.
template <class T>
std::vector<T> joined(std::initializer_list<std::vector<T>> lists) {
  std::vector<T> all;
  for (const std::vector<T>& list : lists) {
    all.insert(all.end(), list.begin(), list.end());
  }
  return all;
}

}  // namespace switchyard
