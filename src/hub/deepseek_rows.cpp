#include "hub/deepseek_rows.h"

#include <fmt/format.h>

#include "base/error.h"
#include "config/values.h"

namespace switchyard {
namespace {

using Json = nlohmann::json;

int64_t whole(const SettingValues& settings, const std::string& name) {
  return std::stoll(settings.at(name).items.front());
}

}  // namespace

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
            check<ConfigError>(whole(settings, "mla.kv_lora_rank") > 0,
                               "{}: kv_lora_rank is 0: expected a number from 1 on",
                               fields.source());
          },
          [](const Config&, Json&) {}};
}

std::vector<TensorRule> latent_attention_tensors() {
  const std::string theirs = "model.layers.{layer}.self_attn.";
  const std::string ours = "layers.{layer}.attention.";
  return {{theirs + "q_a_proj.weight", ours + "q_down"},
          {theirs + "q_a_layernorm.weight", ours + "q_norm"},
          {theirs + "q_b_proj.weight", ours + "q_up", {}, {2, 1}},
          {theirs + "kv_a_proj_with_mqa.weight", ours + "kv_down"},
          {theirs + "kv_a_layernorm.weight", ours + "kv_norm"},
          {theirs + "kv_b_proj.weight", ours + "kv_up", {}, {2, 1}}};
}

void read_shared_experts(HfConfig& fields, SettingValues& settings, int64_t standard) {
  const int64_t count = fields.get("n_shared_experts", standard);
  check<ConfigError>(count > 0, "{}: n_shared_experts is {}: expected a number from 1 on",
                     fields.source(), count);
  const int64_t width = count * whole(settings, "moe.ffn_hidden_size");
  settings["moe.shared_expert_ffn_hidden_size"] = {{print_value(width)}, false};
}

void write_shared_experts(const Config& config, Json& fields) {
  const MoeConfig& moe = config.moe;
  fields["n_shared_experts"] =
      moe.ffn_hidden_size > 0 ? moe.shared_expert_ffn_hidden_size / moe.ffn_hidden_size : 0;
}

std::vector<TensorRule> prediction_tensors(const std::vector<TensorRule>& layer_tensors,
                                           const std::string& final_norm) {
  const std::string theirs = "model.layers.{layer}.";
  const std::string ours = "mtp.{layer}.";
  std::vector<TensorRule> rules = {
      {theirs + "enorm.weight", ours + "embedding_norm.weight"},
      {theirs + "hnorm.weight", ours + "hidden_norm.weight"},
      {theirs + "eh_proj.weight", ours + "projection", {}, {1, 2}},
      {theirs + final_norm, ours + "final_norm.weight"},
  };
  const std::string in_layer = "layers.{layer}.";
  for (TensorRule rule : layer_tensors) {
    if (rule.logical.starts_with(in_layer)) {
      rule.logical = ours + "layer." + rule.logical.substr(in_layer.size());
      rules.push_back(rule);
    }
  }
  for (TensorRule& rule : rules) {
    rule.is_behind_layers = true;
  }
  return rules;
}

std::vector<DroppedTensor> prediction_dropped() {
  return {{"model.layers.{layer}.embed_tokens.weight", DroppedTensor::Reason::kEmbeddingCopy},
          {"model.layers.{layer}.shared_head.head.weight", DroppedTensor::Reason::kHeadCopy}};
}

FieldGroup sequence_balance_loss() {
  return {[](HfConfig& fields, SettingValues& settings) {
            const std::string coefficient = print_value(fields.get("aux_loss_alpha", 0.0));
            const bool is_per_sequence = fields.get("seq_aux", true);
            settings["moe.aux_loss_coeff"] = {{is_per_sequence ? coefficient : "0"}, false};
            settings["moe.step_aux_loss_coeff"] = {{is_per_sequence ? "0" : coefficient}, false};
          },
          [](const Config& config, Json& fields) {
            const bool is_per_sequence = config.moe.step_aux_loss_coeff == 0;
            fields["aux_loss_alpha"] =
                is_per_sequence ? config.moe.aux_loss_coeff : config.moe.step_aux_loss_coeff;
            fields["seq_aux"] = is_per_sequence;
          }};
}

}  // namespace switchyard
