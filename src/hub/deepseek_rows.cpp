#include "hub/deepseek_rows.h"

#include "base/error.h"
#include "config/values.h"
#include "hub/field_groups.h"

namespace switchyard {

std::vector<FieldRule> latent_attention_fields() {
  return {{"kv_lora_rank", "mla.kv_lora_rank", 512},
          {"q_lora_rank", "mla.q_lora_rank", 1536, "0"},
          {"qk_nope_head_dim", "mla.qk_nope_head_dim", 128},
          {"qk_rope_head_dim", "mla.qk_rope_head_dim", 64},
          {"v_head_dim", "mla.v_head_dim", 128}};
}

FieldGroup latent_attention_widths() {
  return {[](HfConfig& fields, SettingValues& settings) {
            fields.mark_read("head_dim");
            fields.mark_read("qk_head_dim");
            check<ConfigError>(whole_value(settings, "mla.kv_lora_rank") > 0,
                               "{}: kv_lora_rank is 0: expected a number from 1 on",
                               fields.source());
          },
          [](const Config&, nlohmann::json&) {}};
}

std::vector<TensorRule> latent_attention_tensors() {
  const std::string theirs = in_layer("self_attn.");
  const std::string ours = logical("attention.");
  return {{theirs + "q_a_proj.weight", ours + "q_down"},
          {theirs + "q_a_layernorm.weight", ours + "q_norm"},
          {theirs + "q_b_proj.weight", ours + "q_up", {}, {2, 1}},
          {theirs + "kv_a_proj_with_mqa.weight", ours + "kv_down"},
          {theirs + "kv_a_layernorm.weight", ours + "kv_norm"},
          {theirs + "kv_b_proj.weight", ours + "kv_up", {}, {2, 1}}};
}

std::vector<TensorRule> prediction_tensors(const std::vector<TensorRule>& layer_tensors,
                                           const std::string& final_norm) {
  const std::string theirs = in_layer("");
  const std::string ours = "mtp.{layer}.";
  std::vector<TensorRule> rules = {
      {theirs + "enorm.weight", ours + "embedding_norm.weight"},
      {theirs + "hnorm.weight", ours + "hidden_norm.weight"},
      {theirs + "eh_proj.weight", ours + "projection", {}, {1, 2}},
      {theirs + final_norm, ours + "final_norm.weight"},
  };
  for (TensorRule rule : layer_tensors) {
    if (rule.logical.starts_with(logical(""))) {
      rule.logical = ours + "layer." + rule.logical.substr(logical("").size());
      rules.push_back(rule);
    }
  }
  for (TensorRule& rule : rules) {
    rule.is_behind_layers = true;
  }
  return rules;
}

std::vector<DroppedTensor> prediction_dropped() {
  return {{in_layer("embed_tokens.weight"), DroppedTensor::Reason::kEmbeddingCopy},
          {in_layer("shared_head.head.weight"), DroppedTensor::Reason::kHeadCopy}};
}

FieldGroup sequence_balance_loss() {
  return {[](HfConfig& fields, SettingValues& settings) {
            const std::string coefficient = print_value(fields.get("aux_loss_alpha", 0.0));
            const bool is_per_sequence = fields.get("seq_aux", true);
            set_value(settings, "moe.aux_loss_coeff", is_per_sequence ? coefficient : "0");
            set_value(settings, "moe.step_aux_loss_coeff", is_per_sequence ? "0" : coefficient);
          },
          [](const Config& config, nlohmann::json& fields) {
            const bool is_per_sequence = config.moe.step_aux_loss_coeff == 0;
            fields["aux_loss_alpha"] =
                is_per_sequence ? config.moe.aux_loss_coeff : config.moe.step_aux_loss_coeff;
            fields["seq_aux"] = is_per_sequence;
          }};
}

}  // namespace switchyard
