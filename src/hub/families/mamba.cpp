#include "config/mixer_sizes.h"
#include "hub/field_groups.h"
#include "hub/scan_fields.h"

// Mamba, without attention and MLP (modeling_mamba.py).
namespace switchyard {
namespace {

using Json = nlohmann::json;

const std::vector<std::string> kUnused = {
    "residual_in_fp32",     "rescale_prenorm_residual", "time_step_scale",  "use_mambapy",
    "use_associative_scan", "time_step_init_scheme",    "intermediate_size"};

// expand may be no whole number; time_step_rank is a number or "auto".
void read_sizes(HfConfig& fields, SettingValues& settings) {
  const int64_t hidden_size = whole_value(settings, "model.hidden_size");
  const auto expand = fields.get("expand", 2.0);
  const auto inner = static_cast<int64_t>(expand * static_cast<double>(hidden_size));
  const Json* rank = fields.find("time_step_rank");
  const bool is_auto = rank == nullptr || *rank == "auto";
  const int64_t dt_rank =
      is_auto ? (hidden_size + 15) / 16 : fields.get("time_step_rank", int64_t{0});
  set_value(settings, "mamba.inner_size", std::to_string(inner));
  set_value(settings, "mamba.dt_rank", std::to_string(dt_rank));
}

void write_sizes(const Config& config, Json& fields) {
  const int64_t inner = mamba1_channels(config);
  fields["expand"] = inner / config.model.hidden_size;
  fields["time_step_rank"] = mamba1_dt_rank(config);
}

std::vector<TensorRule> mixer_tensors() {
  const std::string theirs = "backbone.layers.{layer}.mixer.";
  const std::string ours = "layers.{layer}.mamba1.";
  return {
      {theirs + "in_proj.weight", ours + "x"},
      {theirs + "in_proj.weight", ours + "z"},
      {theirs + "in_proj.bias", ours + "x_input_bias"},
      {theirs + "in_proj.bias", ours + "z_input_bias"},
      {theirs + "conv1d.weight", ours + "conv", {}, {1, 0, 1}},
      {theirs + "conv1d.bias", ours + "conv_bias"},
      {theirs + "x_proj.weight", ours + "select"},
      {theirs + "dt_proj.weight", ours + "dt_weight"},
      {theirs + "dt_proj.bias", ours + "dt_bias"},
      {theirs + "A_log", ours + "a_log"},
      {theirs + "D", ours + "d"},
      {theirs + "out_proj.weight", ours + "output"},
      {theirs + "out_proj.bias", ours + "output_bias"},
  };
}

}  // namespace

ModelFamily mamba_family() {
  return {
      .model_type = "mamba",
      .architecture = "MambaForCausalLM",
      .fields = {{"vocab_size", "model.vocab_size", 50280},
                 {"hidden_size", "model.hidden_size", 768},
                 {"num_hidden_layers", "model.num_layers", 32},
                 {"layer_norm_epsilon", "model.norm_epsilon", 1e-5},
                 {"tie_word_embeddings", "model.tie_embeddings", true},
                 {"initializer_range", "model.init_std", 0.1},
                 {"state_size", "mamba.state_size", 16},
                 {"conv_kernel", "mamba.conv_width", 4},
                 {"use_conv_bias", "mamba.conv_bias", true},
                 {"use_bias", "mamba.input_bias", false},
                 {"use_bias", "mamba.output_bias", false},
                 {"time_step_min", "mamba.init_min_dt", 0.001},
                 {"time_step_max", "mamba.init_max_dt", 0.1},
                 {"time_step_floor", "mamba.init_dt_floor", 1e-4}},
      .fixed_fields = {{"hidden_act", "silu", "the convolution is followed by SiLU"}},
      .fixed_settings = {{"model.layer_pattern", "S"}, {"model.num_attention_heads", "0"}},
      .groups = {{read_sizes, write_sizes}, unused_fields(kUnused)},
      .tensors = joined<TensorRule>({pure_scan_tensors(), mixer_tensors()}),
      .dropped = {{"lm_head.weight", DroppedTensor::Reason::kTiedHead}},
  };
}

}  // namespace switchyard
