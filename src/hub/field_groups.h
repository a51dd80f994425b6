#pragma once

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
template <int64_t kBase>
FieldGroup rope_fields() {
  return {[](HfConfig& fields, SettingValues& settings) {
            read_rope(fields, settings, {static_cast<double>(kBase)});
          },
          write_rope};
}
template <int64_t kBase, int64_t kPercent>
FieldGroup partial_rope_fields() {
  return {[](HfConfig& fields, SettingValues& settings) {
            read_rope(fields, settings,
                      {static_cast<double>(kBase), static_cast<double>(kPercent) / 100});
          },
          write_rope};
}

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

// query_pre_attn_scalar: products of queries and keys are divided by its square root (Gemma 2, 3).
FieldGroup query_scalar();

// num_nextn_predict_layers: modules that foretell further tokens, of which transformers' classes
// make none.
FieldGroup prediction_layers();

// The embedding times the square root of the hidden size (Gemma).
FieldGroup scaled_embedding();

// The number of shared experts: they are one, of `number` times the width of a routed one, which
// must have been read. `kStandard` is the family's number where the file names none.
void read_shared_experts(HfConfig& fields, SettingValues& settings, const std::string& field,
                         int64_t standard);
void write_shared_experts(const Config& config, nlohmann::json& fields, const std::string& field);

// mlp_only_layers and decoder_sparse_step: which layers have experts (Qwen2-MoE, Qwen3-MoE).
FieldGroup sparse_layers();

// router_aux_loss_coef. transformers averages over layers and its balanced value is top_k; ours is
// summed over layers and 1 when balanced: coefficient x top_k / MoE layers gives the same loss when
// balanced. `kMillionths` is the family's standard value.
void read_balance_loss(HfConfig& fields, SettingValues& settings, double standard);
void write_balance_loss(const Config& config, nlohmann::json& fields);
template <int64_t kMillionths>
FieldGroup balance_loss() {
  return {[](HfConfig& fields, SettingValues& settings) {
            read_balance_loss(fields, settings, static_cast<double>(kMillionths) / 1e6);
          },
          write_balance_loss};
}

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

// A setting of what has been read.
void set_value(SettingValues& settings, const std::string& name, const std::string& value);
int64_t whole_value(const SettingValues& settings, const std::string& name);

// Embedding, norms, attention projections and head, as Llama names them, and what else its files
// may hold.
std::vector<TensorRule> decoder_tensors();
// The same with norms after attention and MLP too (Gemma 2, 3).
std::vector<TensorRule> post_normed_decoder_tensors();
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
