#include <array>
#include <string_view>
#include <utility>

#include "base/error.h"
#include "config/layer_pattern.h"
#include "config/mixer_sizes.h"
#include "hub/field_groups.h"
#include "hub/scan_fields.h"

// Nemotron-H, Nemotron Nano 2, Nemotron-3 (modeling_nemotron_h.py): each layer is Mamba-2,
// attention without positions, an MLP or experts.
namespace switchyard {
namespace {

using Json = nlohmann::json;

constexpr std::array<std::pair<char, std::string_view>, 4> kLayerTypes = {
    {{'M', "linear_attention"}, {'*', "full_attention"}, {'-', "mlp"}, {'E', "moe"}}};
// As files published before transformers 5.24 say it.
constexpr std::array<std::pair<char, std::string_view>, 2> kOldLayerTypes = {
    {{'M', "mamba"}, {'*', "attention"}}};

const std::vector<std::string> kUnused = {"attention_bias",
                                          "expand",
                                          "mamba_expand",
                                          "num_logits_to_keep",
                                          "use_mamba_kernels",
                                          "mamba_proj_bias",
                                          "mamba_ssm_cache_dtype",
                                          "residual_in_fp32",
                                          "hidden_dropout",
                                          "rescale_prenorm_residual",
                                          "n_shared_experts",
                                          "time_step_limit",
                                          "moe_shared_expert_overlap",
                                          "mamba_dt_limit",
                                          "num_hidden_layers",
                                          "mtp_layers_block_type",
                                          "sliding_window",
                                          "mtp_hybrid_override_pattern"};

char letter_of_type(const std::string& type, const std::string& source) {
  for (const auto& [letter, name] : kLayerTypes) {
    if (name == type) {
      return letter;
    }
  }
  for (const auto& [letter, name] : kOldLayerTypes) {
    if (name == type) {
      return letter;
    }
  }
  throw ConfigError(fmt::format(
      "{}: layers_block_type has \"{}\"; known are: linear_attention, full_attention, mlp, moe",
      source, type));
}

// layers_block_type, or hybrid_override_pattern, which has a letter for each layer.
void read_layers(HfConfig& fields, SettingValues& settings) {
  const auto old = fields.get("hybrid_override_pattern", std::string("ME*-"));
  const Json* listed = fields.find("layers_block_type", {"layer_types"});
  std::string pattern = old;
  if (listed != nullptr && !listed->is_null()) {
    pattern.clear();
    for (const std::string& type : fields.get(
             fields.fields().contains("layers_block_type") ? "layers_block_type" : "layer_types",
             std::vector<std::string>())) {
      pattern += letter_of_type(type, fields.source());
    }
  }
  check<ConfigError>(!pattern.empty() && pattern.find_first_not_of("M*-E") == std::string::npos,
                     "{}: its layers are \"{}\": expected one or more of M * - E", fields.source(),
                     pattern);
  settings["model.layer_pattern"] = {{pattern}, false};
  settings["model.num_layers"] = {{std::to_string(pattern.size())}, false};
  if (pattern.find('E') == std::string::npos) {
    settings["moe.num_experts"] = {{"0"}, false};
  }
}

// The class gives mlp_bias to the projections of the latent too.
void check_latent(HfConfig& fields, SettingValues& settings) {
  const bool has_latent = settings.at("moe.latent_size").items.front() != "0";
  check<ConfigError>(!has_latent || !fields.get("mlp_bias", false),
                     "{}: mlp_bias is true with a moe_latent_size: projections to and from the "
                     "latent have no biases here",
                     fields.source());
}

void write_layers(const Config& config, Json& fields) {
  std::vector<std::string> types;
  for (const LayerKinds& layer : layer_kinds(config)) {
    std::string word = layer_pattern_of({layer});
    word.erase(word.find_last_not_of(' ') + 1);
    for (const auto& [letter, type] : kLayerTypes) {
      if (word == std::string(1, letter)) {
        types.emplace_back(type);
      }
    }
  }
  fields["layers_block_type"] = types;
  fields["mamba_num_heads"] = mamba2_heads(config);
}

std::vector<TensorRule> mixer_tensors() {
  const std::string layer = "backbone.layers.{layer}.";
  const std::string theirs = layer + "mixer.";
  const std::string ours = "layers.{layer}.";
  return {
      {layer + "norm.weight", ours + "mixer_norm.weight"},
      {layer + "norm.weight", ours + "mlp_norm.weight"},
      {theirs + "q_proj.weight", ours + "attention.q", {}, {2, 1}},
      {theirs + "k_proj.weight", ours + "attention.k", {}, {2, 1}},
      {theirs + "v_proj.weight", ours + "attention.v", {}, {2, 1}},
      {theirs + "o_proj.weight", ours + "attention.o", {}, {1, 2}},
      {theirs + "up_proj.weight", ours + "mlp.up"},
      {theirs + "up_proj.bias", ours + "mlp.up_bias"},
      {theirs + "down_proj.weight", ours + "mlp.down"},
      {theirs + "down_proj.bias", ours + "mlp.down_bias"},
  };
}

std::vector<TensorRule> moe_tensors() {
  const std::string theirs = "backbone.layers.{layer}.mixer.";
  const std::string ours = "layers.{layer}.moe.";
  return {
      {theirs + "gate.weight", ours + "router.weight"},
      {theirs + "gate.e_score_correction_bias", ours + "router.expert_bias"},
      {theirs + "experts.{expert}.up_proj.weight", ours + "experts.up", {kExpertIndex}},
      {theirs + "experts.{expert}.down_proj.weight", ours + "experts.down", {kExpertIndex}},
      {theirs + "experts.up_proj", ours + "experts.up", {}, {}, true},
      {theirs + "experts.down_proj", ours + "experts.down", {}, {}, true},
      {theirs + "fc1_latent_proj.weight", ours + "latent_down.weight"},
      {theirs + "fc2_latent_proj.weight", ours + "latent_up.weight"},
      {theirs + "shared_experts.up_proj.weight", ours + "shared_expert.up"},
      {theirs + "shared_experts.up_proj.bias", ours + "shared_expert.up_bias"},
      {theirs + "shared_experts.down_proj.weight", ours + "shared_expert.down"},
      {theirs + "shared_experts.down_proj.bias", ours + "shared_expert.down_bias"},
  };
}

std::vector<FieldRule> expert_fields() {
  return {{"n_routed_experts", "moe.num_experts", 8, "", {"num_local_experts"}},
          {"num_experts_per_tok", "moe.top_k", 2},
          {"moe_intermediate_size", "moe.ffn_hidden_size", 7688},
          {"moe_shared_expert_intermediate_size", "moe.shared_expert_ffn_hidden_size", 7688},
          {"mlp_bias", "moe.shared_expert_bias", false},
          {"moe_latent_size", "moe.latent_size", nullptr, "0"},
          {"routed_scaling_factor", "moe.scaling_factor", 1.0},
          {"n_group", "moe.num_groups", 1},
          {"topk_group", "moe.group_top_k", 1},
          {"norm_topk_prob", "moe.renormalize", true}};
}

std::vector<FieldRule> mamba_fields() {
  return {{"ssm_state_size", "mamba.state_size", 128},
          {"mamba_num_heads", "mamba.num_heads", 128},
          {"mamba_head_dim", "mamba.head_dim", 64},
          {"n_groups", "mamba.num_groups", 8, "", {"mamba_n_groups"}},
          {"conv_kernel", "mamba.conv_width", 4, "", {"mamba_d_conv"}},
          {"use_conv_bias", "mamba.conv_bias", true, "", {"mamba_conv_bias"}},
          {"use_bias", "mamba.input_bias", false},
          {"use_bias", "mamba.output_bias", false},
          {"chunk_size", "mamba.chunk_size", 128, "", {"mamba_chunk_size"}},
          {"time_step_max", "mamba.init_max_dt", 0.1, "", {"mamba_dt_max"}},
          {"time_step_floor", "mamba.init_dt_floor", 1e-4, "", {"mamba_dt_init_floor"}},
          {"time_step_min", "mamba.init_min_dt", 0.001, "", {"mamba_dt_min"}},
          // The class takes what the first time steps begin at as the smallest of all.
          {"time_step_min", "mamba.min_dt", 0.001, "", {"mamba_dt_min"}}};
}

}  // namespace

ModelFamily nemotron_h_family() {
  return {
      .model_type = "nemotron_h",
      .architecture = "NemotronHForCausalLM",
      .fields = joined<FieldRule>({{{"vocab_size", "model.vocab_size", 131072},
                                    {"hidden_size", "model.hidden_size", 4096},
                                    {"intermediate_size", "model.ffn_hidden_size", 21504},
                                    {"num_attention_heads", "model.num_attention_heads", 32},
                                    {"num_key_value_heads", "model.num_query_groups", 8, "0"},
                                    {"head_dim", "model.head_dim", 128},
                                    {"max_position_embeddings", "model.max_position", 4096},
                                    {"layer_norm_epsilon", "model.norm_epsilon", 1e-5},
                                    {"initializer_range", "model.init_std", 0.02},
                                    {"mlp_bias", "model.mlp_bias", false},
                                    {.field = "mlp_hidden_act",
                                     .setting = "model.activation",
                                     .standard = "relu2",
                                     .words = activation_words()}},
                                   mamba_fields(),
                                   expert_fields()}),
      .fixed_fields = {{"attention_dropout", 0.0, "dropout is not implemented"},
                       {"mamba_hidden_act", "silu", "the convolution is followed by SiLU"},
                       {"tie_word_embeddings", false, "its class does not tie them"},
                       {"num_nextn_predict_layers", 0,
                        "its layers for multi-token prediction are not read"}},
      .fixed_settings = {{"model.gated_mlp", "false"},
                         {"rope.partial_factor", "0"},
                         {"mamba.norm", "after_gate"},
                         {"mamba.max_dt", "0"},
                         {"moe.score_function", "sigmoid"},
                         {"moe.expert_bias", "true"},
                         {"moe.group_score", "top2_sum"}},
      .groups = {{read_layers, write_layers},
                 {check_latent, [](const Config&, Json&) {}},
                 unused_fields(kUnused)},
      .tensors = joined<TensorRule>({{{"backbone.embeddings.weight", "embedding.weight"},
                                      {"backbone.norm_f.weight", "final_norm.weight"},
                                      {"lm_head.weight", "head.weight"}},
                                     mixer_tensors(),
                                     mamba2_tensors("backbone.layers.{layer}.mixer."),
                                     moe_tensors()}),
      .dropped = {},
  };
}

}  // namespace switchyard
