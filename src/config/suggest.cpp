#include "config/suggest.h"

#include <algorithm>
#include <cctype>
#include <map>

namespace switchyard {
namespace {

constexpr size_t kShortestBeginning = 4;  // shorter beginnings fit too many names
constexpr size_t kLongestWord = 100;      // longer ones are no names
constexpr size_t kMostEdits = 3;          // more edits than this are not a typing mistake

std::string in_our_spelling(std::string_view word) {
  std::string result;
  for (const char letter : word) {
    result +=
        letter == '-' ? '_' : static_cast<char>(std::tolower(static_cast<int>(letter) & 0xff));
  }
  return result;
}

bool begins_with_the_other(std::string_view a, std::string_view b) {
  const size_t shared = std::min(a.size(), b.size());
  return shared >= kShortestBeginning && a.substr(0, shared) == b.substr(0, shared);
}

// Names of the same thing in Megatron-LM's arguments and in Hugging Face's config.json and
// TrainingArguments.
const std::map<std::string, std::string, std::less<>>& foreign_names() {
  static const std::map<std::string, std::string, std::less<>> names = {
      {"output_dir", "run.dir"},
      {"load", "run.dir"},
      {"save", "run.dir"},

      {"num_hidden_layers", "model.num_layers"},
      {"n_layer", "model.num_layers"},
      {"n_layers", "model.num_layers"},
      {"n_embd", "model.hidden_size"},
      {"d_model", "model.hidden_size"},
      {"intermediate_size", "model.ffn_hidden_size"},
      {"n_head", "model.num_attention_heads"},
      {"n_heads", "model.num_attention_heads"},
      {"num_key_value_heads", "model.num_query_groups"},
      {"n_kv_heads", "model.num_query_groups"},
      {"kv_channels", "model.head_dim"},
      {"padded_vocab_size", "model.vocab_size"},
      {"max_position_embeddings", "model.max_position"},
      {"layernorm_epsilon", "model.norm_epsilon"},
      {"rms_norm_eps", "model.norm_epsilon"},
      {"tie_word_embeddings", "model.tie_embeddings"},
      {"share_embeddings_and_output_weights", "model.tie_embeddings"},
      {"untie_embeddings_and_output_weights", "model.tie_embeddings"},
      {"init_method_std", "model.init_std"},
      {"initializer_range", "model.init_std"},

      {"attention_bias", "attention.qkv_bias"},
      {"add_qkv_bias", "attention.qkv_bias"},
      {"qk_layernorm", "attention.qk_norm"},
      {"clip_qkv", "attention.qkv_clip"},
      {"sliding_window", "attention.window"},
      {"window_size", "attention.window"},
      {"layer_types", "attention.window_layers"},
      {"max_window_layers", "attention.window_layers"},

      {"rope_type", "rope.type"},
      {"rope_scaling", "rope.type"},
      {"rope_theta", "rope.base"},
      {"rotary_base", "rope.base"},
      {"rotary_percent", "rope.partial_factor"},
      {"partial_rotary_factor", "rope.partial_factor"},
      {"rotary_scaling_factor", "rope.factor"},
      {"original_max_position_embeddings", "rope.original_max_position"},

      {"hybrid_override_pattern", "model.layer_pattern"},
      {"hybrid_layer_pattern", "model.layer_pattern"},
      {"layers_block_type", "model.layer_pattern"},
      {"final_logit_softcapping", "model.logit_softcap"},
      {"swiglu_limit", "model.activation_clamp"},
      {"activation_func_clamp_value", "model.activation_clamp"},
      {"glu_linear_offset", "model.activation_offset"},
      {"layernorm_zero_centered_gamma", "model.norm_plus_one"},
      {"normalization", "model.norm"},
      {"query_pre_attn_scalar", "attention.scale"},
      {"softmax_scale", "attention.scale"},
      {"attn_logit_softcapping", "attention.softcap"},
      {"softmax_type", "attention.sinks"},
      {"attention_output_gate", "attention.output_gate"},
      {"kv_lora_rank", "mla.kv_lora_rank"},
      {"q_lora_rank", "mla.q_lora_rank"},
      {"qk_head_dim", "mla.qk_nope_head_dim"},
      {"qk_pos_emb_head_dim", "mla.qk_rope_head_dim"},
      {"multi_latent_attention", "mla.kv_lora_rank"},
      {"rotary_interleaved", "rope.interleaved"},
      {"rope_interleave", "rope.interleaved"},
      {"rope_local_base_freq", "rope.window_base"},
      {"moe_latent_size", "moe.latent_size"},
      {"moe_flex_dispatcher_backend", "moe.dispatcher"},
      {"moe_enable_deepep", "moe.dispatcher"},
      {"mamba_state_dim", "mamba.state_size"},
      {"ssm_state_size", "mamba.state_size"},
      {"mamba_d_state", "mamba.state_size"},
      {"mamba_head_dim", "mamba.head_dim"},
      {"mamba_d_head", "mamba.head_dim"},
      {"mamba_num_groups", "mamba.num_groups"},
      {"mamba_n_groups", "mamba.num_groups"},
      {"n_groups", "mamba.num_groups"},
      {"mamba_num_heads", "mamba.num_heads"},
      {"mamba_n_heads", "mamba.num_heads"},
      {"conv_kernel", "mamba.conv_width"},
      {"d_conv", "mamba.conv_width"},
      {"mamba_d_conv", "mamba.conv_width"},
      {"linear_num_key_heads", "delta_net.num_key_heads"},
      {"linear_num_value_heads", "delta_net.num_value_heads"},
      {"linear_key_head_dim", "delta_net.key_head_dim"},
      {"linear_value_head_dim", "delta_net.value_head_dim"},
      {"linear_conv_kernel_dim", "delta_net.conv_width"},
      {"mtp_num_layers", "mtp.num_layers"},
      {"num_nextn_predict_layers", "mtp.num_layers"},
      {"mtp_loss_scaling_factor", "mtp.loss_coeff"},
      {"mtp_use_repeated_layer", "mtp.repeated_layer"},
      {"fine_grained_activation_offloading", "train.offload_modules"},
      {"cpu_offloading", "train.offload_modules"},
      {"optimizer_cpu_offload", "optimizer.offload"},
      {"optimizer_offload_fraction", "optimizer.offload"},
      {"data_parallel_sharding_strategy", "parallel.data_sharding"},
      {"use_megatron_fsdp", "parallel.data_sharding"},
      {"num_gpus_per_node", "parallel.ranks_per_node"},
      {"nproc_per_node", "parallel.ranks_per_node"},
      {"overlap_moe_expert_parallel_comm", "parallel.expert_overlap"},
      {"delay_wgrad_compute", "parallel.pipeline_schedule"},

      {"num_moe_experts", "moe.num_experts"},
      {"num_local_experts", "moe.num_experts"},
      {"n_routed_experts", "moe.num_experts"},
      {"moe_router_topk", "moe.top_k"},
      {"num_experts_per_tok", "moe.top_k"},
      {"moe_ffn_hidden_size", "moe.ffn_hidden_size"},
      {"moe_intermediate_size", "moe.ffn_hidden_size"},
      {"first_k_dense_replace", "moe.first_dense_layers"},
      {"moe_shared_expert_intermediate_size", "moe.shared_expert_ffn_hidden_size"},
      {"shared_expert_intermediate_size", "moe.shared_expert_ffn_hidden_size"},
      {"moe_router_score_function", "moe.score_function"},
      {"scoring_func", "moe.score_function"},
      {"moe_router_pre_softmax", "moe.pre_softmax"},
      {"norm_topk_prob", "moe.renormalize"},
      {"moe_layer_freq", "moe.layers"},
      {"decoder_sparse_step", "moe.layers"},
      {"mlp_only_layers", "moe.layers"},
      {"moe_shared_expert_gate", "moe.shared_expert_gate"},
      {"moe_router_num_groups", "moe.num_groups"},
      {"n_group", "moe.num_groups"},
      {"moe_router_group_topk", "moe.group_top_k"},
      {"topk_group", "moe.group_top_k"},
      {"moe_router_dtype", "moe.router_dtype"},
      {"hidden_act", "model.activation"},
      {"add_bias_linear", "model.mlp_bias"},
      {"gated_linear_unit", "model.gated_mlp"},
      {"moe_router_topk_scaling_factor", "moe.scaling_factor"},
      {"routed_scaling_factor", "moe.scaling_factor"},
      {"moe_router_enable_expert_bias", "moe.expert_bias"},
      {"moe_router_bias_update_rate", "moe.bias_update_rate"},
      {"moe_aux_loss_coeff", "moe.aux_loss_coeff"},
      {"router_aux_loss_coef", "moe.aux_loss_coeff"},
      {"aux_loss_alpha", "moe.aux_loss_coeff"},
      {"moe_router_load_balancing_type", "routing.method"},
      {"moe_input_jitter_eps", "routing.input_jitter"},
      {"router_jitter_noise", "routing.input_jitter"},
      {"moe_router_force_load_balancing", "routing.method"},
      {"moe_expert_capacity_factor", "routing.capacity_factor"},
      {"moe_token_drop_policy", "routing.capacity_drop"},
      {"moe_pad_expert_input_to_capacity", "routing.capacity_padding"},
      {"moe_z_loss_coeff", "moe.z_loss_coeff"},
      {"router_z_loss_coef", "moe.z_loss_coeff"},
      {"moe_token_dispatcher_type", "moe.dispatcher"},

      {"data_path", "data.train"},
      {"train_data_path", "data.train"},
      {"valid_data_path", "data.eval"},
      {"tokenizer_type", "data.tokenizer"},
      {"tokenizer_model", "data.tokenizer"},
      {"seq_length", "data.sequence_length"},
      {"seq_len", "data.sequence_length"},
      {"inter_document_masking", "data.documents"},
      {"reset_attention_mask", "data.documents"},
      {"reset_position_ids", "data.documents"},
      {"eod_mask_loss", "data.mask_end_of_document"},

      {"train_iters", "train.steps"},
      {"max_steps", "train.steps"},
      {"exit_duration_in_mins", "train.minutes"},
      {"per_device_train_batch_size", "train.micro_batch_size"},
      {"bf16", "train.precision"},
      {"torch_dtype", "train.precision"},
      {"recompute_granularity", "train.recompute"},
      {"gradient_checkpointing", "train.recompute"},
      {"recompute_num_layers", "train.recompute_layers"},
      {"eval_interval", "train.eval_every"},
      {"eval_steps", "train.eval_every"},
      {"eval_iters", "train.eval_batches"},
      {"log_interval", "train.log_every"},
      {"logging_steps", "train.log_every"},

      {"learning_rate", "optimizer.lr"},
      {"lr_warmup_iters", "optimizer.warmup_steps"},
      {"lr_warmup_init", "optimizer.initial_lr"},
      {"lr_decay_style", "optimizer.schedule"},
      {"lr_wsd_decay_iters", "optimizer.decay_steps"},
      {"lr_wsd_decay_style", "optimizer.decay_shape"},
      {"weight_decay_incr_style", "optimizer.weight_decay_schedule"},
      {"end_weight_decay", "optimizer.final_weight_decay"},
      {"lr_scheduler_type", "optimizer.schedule"},
      {"adam_beta1", "optimizer.beta1"},
      {"adam_beta2", "optimizer.beta2"},
      {"adam_eps", "optimizer.epsilon"},
      {"adam_epsilon", "optimizer.epsilon"},
      {"clip_grad", "optimizer.clip_grad_norm"},
      {"max_grad_norm", "optimizer.clip_grad_norm"},

      {"tensor_model_parallel_size", "parallel.tensor_size"},
      {"tp", "parallel.tensor_size"},
      {"pipeline_model_parallel_size", "parallel.pipeline_size"},
      {"pp", "parallel.pipeline_size"},
      {"virtual_pipeline_model_parallel_size", "parallel.virtual_pipeline_size"},
      {"pipeline_model_parallel_layout", "parallel.pipeline_layout"},
      {"context_parallel_size", "parallel.context_size"},
      {"cp_comm_type", "parallel.context_exchange"},
      {"use_distributed_optimizer", "parallel.data_sharding"},
      {"zero_stage", "parallel.data_sharding"},
      {"cp", "parallel.context_size"},
      {"expert_model_parallel_size", "parallel.expert_size"},
      {"ep", "parallel.expert_size"},
      {"expert_tensor_parallel_size", "parallel.expert_tensor_size"},
      {"etp", "parallel.expert_tensor_size"},
      {"distributed_timeout_minutes", "parallel.timeout_s"},

      {"save_interval", "checkpoint.every"},
      {"save_steps", "checkpoint.every"},
      {"save_total_limit", "checkpoint.keep"},
  };
  return names;
}

}  // namespace

size_t edit_distance(std::string_view a, std::string_view b) {
  // distances[i][j]: from the first i characters of a to the first j of b
  std::vector<std::vector<size_t>> distances(a.size() + 1, std::vector<size_t>(b.size() + 1));
  for (size_t i = 0; i <= a.size(); ++i) {
    for (size_t j = 0; j <= b.size(); ++j) {
      size_t& distance = distances[i][j];
      if (i == 0 || j == 0) {
        distance = i + j;
        continue;
      }
      const size_t replaced = distances[i - 1][j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1);
      distance = std::min({replaced, distances[i - 1][j] + 1, distances[i][j - 1] + 1});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) {
        distance = std::min(distance, distances[i - 2][j - 2] + 1);
      }
    }
  }
  return distances[a.size()][b.size()];
}

std::string nearest_name(std::string_view word, const std::vector<std::string>& candidates) {
  if (word.size() > kLongestWord) {
    return "";
  }
  const std::string ours = in_our_spelling(word);
  size_t fewest = std::clamp<size_t>(ours.size() / 3, 1, kMostEdits) + 1;
  std::string nearest;
  for (const std::string& candidate : candidates) {
    if (const size_t edits = edit_distance(ours, in_our_spelling(candidate)); edits < fewest) {
      fewest = edits;
      nearest = candidate;
    }
  }
  if (!nearest.empty()) {
    return nearest;
  }
  for (const std::string& candidate : candidates) {
    if (begins_with_the_other(ours, in_our_spelling(candidate))) {
      return candidate;
    }
  }
  return "";
}

std::string name_of_foreign_key(std::string_view key) {
  const auto found = foreign_names().find(in_our_spelling(key));
  return found == foreign_names().end() ? "" : found->second;
}

std::vector<std::string> foreign_key_targets() {
  std::vector<std::string> targets;
  for (const auto& entry : foreign_names()) {
    targets.push_back(entry.second);
  }
  return targets;
}

}  // namespace switchyard
