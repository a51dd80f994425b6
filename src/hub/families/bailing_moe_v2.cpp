#include <algorithm>
#include <optional>

#include "base/error.h"
#include "config/values.h"
#include "hub/deepseek_rows.h"
#include "hub/field_groups.h"

// Ling-mini-2.0, Ling-flash-2.0, Ling-1T and the Ring models of the same size. transformers 5.24
// has no such class: the meaning is that of modeling_bailing_moe_v2.py of inclusionAI's Ling-V2,
// which their directories carry.
namespace switchyard {
namespace {

using Json = nlohmann::json;

// Files of Ling-1T have rotary_dim, which must not contradict partial_rotary_factor.
void read_rope_with_dim(HfConfig& fields, SettingValues& settings) {
  const std::optional<double> share = read_rotary_dim(fields, settings);
  read_rope(fields, settings, {600000, share.value_or(1)});
  if (!share) {
    return;
  }
  const std::string& read = settings.at("rope.partial_factor").items.front();
  check<ConfigError>(std::stod(read) == *share,
                     "{}: rotary_dim is {}, which is {} of head_dim ({}), but "
                     "partial_rotary_factor is {}: keep the one that is right",
                     fields.source(), fields.find("rotary_dim")->dump(), *share,
                     whole_value(settings, "model.head_dim"), read);
}

// Written as the class reads it, which is older than rope_parameters.
void write_older_rope(const Config& config, Json& fields) {
  write_rope(config, fields);
  Json scaling = fields.at("rope_parameters");
  fields.erase("rope_parameters");
  fields["rope_theta"] = scaling.at("rope_theta");
  fields["partial_rotary_factor"] = config.rope.partial_factor;
  scaling.erase("rope_theta");
  scaling.erase("partial_rotary_factor");
  fields["rope_scaling"] = config.rope.type == RopeType::kDefault ? Json(nullptr) : scaling;
}

// num_shared_experts times the width of a routed one; null: none.
FieldGroup shared_experts_as_wide_as_routed() {
  const FieldGroup counted = shared_experts("num_shared_experts", 1);
  return {[=](HfConfig& fields, SettingValues& settings) {
            const int64_t width = whole_value(settings, "moe.ffn_hidden_size");
            const int64_t stated = fields.get("moe_shared_expert_intermediate_size", width);
            check<ConfigError>(stated == width,
                               "{}: moe_shared_expert_intermediate_size is {}, but the model's "
                               "code makes a shared expert as wide as a routed one: "
                               "moe_intermediate_size is {}",
                               fields.source(), stated, width);
            const Json* given = fields.find("num_shared_experts");
            if (given != nullptr && given->is_null()) {
              set_value(settings, "moe.shared_expert_ffn_hidden_size", "0");
            } else {
              counted.read(fields, settings);
            }
          },
          [=](const Config& config, Json& fields) {
            counted.write(config, fields);
            if (fields["num_shared_experts"] == 0) {
              fields["num_shared_experts"] = nullptr;
            }
          }};
}

// Weights are divided by their sum, but for that of a single expert.
FieldGroup renormalized_beyond_one() {
  return {[](HfConfig&, SettingValues& settings) {
            set_value(settings, "moe.renormalize",
                      whole_value(settings, "moe.top_k") > 1 ? "true" : "false");
          },
          [](const Config&, Json&) {}};
}

// mtp_loss_scaling_factor weighs the sum over the modules, mtp.loss_coeff their mean.
FieldGroup prediction_loss() {
  static constexpr auto num_modules = [](int64_t modules) {
    return static_cast<double>(std::max(modules, int64_t{1}));
  };
  return {[](HfConfig& fields, SettingValues& settings) {
            const double factor = fields.get("mtp_loss_scaling_factor", 0.0);
            set_value(settings, "mtp.loss_coeff",
                      print_value(factor * num_modules(whole_value(settings, "mtp.num_layers"))));
          },
          [](const Config& config, Json& fields) {
            fields["mtp_loss_scaling_factor"] =
                config.mtp.loss_coeff / num_modules(config.mtp.num_layers);
          }};
}

std::vector<TensorRule> attention_tensors() {
  const std::string fused = in_layer("attention.query_key_value.");
  std::vector<TensorRule> rules;
  for (const std::string piece : {"q", "k", "v"}) {
    rules.push_back({fused + "weight", logical("attention." + piece), {}, {2, 1}});
    rules.push_back({fused + "bias", logical("attention." + piece + "_bias"), {}, {kAllDims}});
  }
  const std::vector<TensorRule> others = {
      {in_layer("attention.dense.weight"), logical("attention.o"), {}, {1, 2}},
      {in_layer("attention.dense.bias"), logical("attention.o_bias")},
      {in_layer("attention.query_layernorm.weight"), logical("attention.q_norm"), {}, {kAllDims}},
      {in_layer("attention.key_layernorm.weight"), logical("attention.k_norm"), {}, {kAllDims}}};
  rules.insert(rules.end(), others.begin(), others.end());
  return rules;
}

std::vector<TensorRule> layer_tensors() {
  return joined<TensorRule>(
      {{{in_layer("input_layernorm.weight"), logical("mixer_norm.weight")},
        {in_layer("post_attention_layernorm.weight"), logical("mlp_norm.weight")},
        {in_layer("mlp.gate.expert_bias"), logical("moe.router.expert_bias")}},
       attention_tensors(),
       mlp_tensors(),
       expert_tensors(),
       shared_experts_tensors()});
}

}  // namespace

ModelFamily bailing_moe_v2_family() {
  return {
      .model_type = "bailing_moe_v2",
      .architecture = "BailingMoeV2ForCausalLM",
      .other_model_types = {"bailing_moe"},
      .only_on_request = true,
      .fields = joined<FieldRule>({decoder_fields({.vocab_size = 157184,
                                                   .hidden_size = 2048,
                                                   .num_layers = 20,
                                                   .num_heads = 16,
                                                   .num_kv_heads = 4,
                                                   .max_position = 32768,
                                                   .norm_epsilon = 1e-6}),
                                   {{"intermediate_size", "model.ffn_hidden_size", 5120},
                                    {"head_dim", "model.head_dim", 128},
                                    {"use_qkv_bias", "attention.qkv_bias", false},
                                    {"use_bias", "attention.output_bias", false},
                                    {"num_experts", "moe.num_experts", 256},
                                    {"num_experts_per_tok", "moe.top_k", 8},
                                    {"moe_intermediate_size", "moe.ffn_hidden_size", 512},
                                    {"routed_scaling_factor", "moe.scaling_factor", 1.0},
                                    {"n_group", "moe.num_groups", 8},
                                    {"topk_group", "moe.group_top_k", 4},
                                    {"first_k_dense_replace", "moe.first_dense_layers", 1},
                                    {"num_nextn_predict_layers", "mtp.num_layers", 0}}}),
      .fixed_fields = {{"attention_dropout", 0.0, "dropout is not implemented"},
                       {"embedding_dropout", 0.0, "dropout is not implemented"},
                       {"output_dropout", 0.0, "dropout is not implemented"},
                       {"norm_topk_prob", true, "the model's code divides by their sum"},
                       {"moe_router_enable_expert_bias", true, "the model's code always has it"},
                       {"score_function", "sigmoid", "the model's code knows no other"},
                       {"router_dtype", "fp32", "scores are computed in fp32"},
                       {"use_rmsnorm", true, "the model's code knows no other"}},
      .fixed_settings = {{"moe.score_function", "sigmoid"},
                         {"moe.expert_bias", "true"},
                         {"moe.group_score", "top2_sum"}},
      .groups = {{read_rope_with_dim, write_older_rope},
                 query_norm(true),
                 shared_experts_as_wide_as_routed(),
                 renormalized_beyond_one(),
                 prediction_loss(),
                 unused_fields({"max_window_layers"})},
      .tensors =
          joined<TensorRule>({{{"model.word_embeddings.weight", "embedding.weight"},
                               {"model.norm.weight", "final_norm.weight"},
                               {"lm_head.weight", "head.weight"}},
                              layer_tensors(),
                              prediction_tensors(layer_tensors(), "final_layernorm.weight")}),
      .dropped = {{"lm_head.weight", DroppedTensor::Reason::kTiedHead}},
  };
}

}  // namespace switchyard
