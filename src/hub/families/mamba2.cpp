#include "base/error.h"
#include "config/layer_pattern.h"
#include "config/mixer_sizes.h"
#include "hub/field_groups.h"
#include "hub/scan_fields.h"

// Mamba-2, without attention and MLP (modeling_mamba2.py).
namespace switchyard {
namespace {

const std::vector<std::string> kUnused = {"residual_in_fp32", "rescale_prenorm_residual",
                                          "time_step_rank"};

// The class asks for expand x hidden_size = num_heads x head_dim.
void read_width(HfConfig& fields, SettingValues& settings) {
  const auto expand = fields.get("expand", int64_t{2});
  const int64_t inner =
      whole_value(settings, "mamba.num_heads") * whole_value(settings, "mamba.head_dim");
  const int64_t hidden_size = whole_value(settings, "model.hidden_size");
  check<ConfigError>(expand * hidden_size == inner,
                     "{}: expand x hidden_size ({} x {}) must be num_heads x head_dim ({})",
                     fields.source(), expand, hidden_size, inner);
}

void write_width(const Config& config, nlohmann::json& fields) {
  fields["num_heads"] = mamba2_heads(config);
  fields["expand"] = mamba2_heads(config) * config.mamba.head_dim / config.model.hidden_size;
}

}  // namespace

ModelFamily mamba2_family() {
  return {
      .model_type = "mamba2",
      .architecture = "Mamba2ForCausalLM",
      .fields = {{"vocab_size", "model.vocab_size", 32768},
                 {"hidden_size", "model.hidden_size", 4096},
                 {"num_hidden_layers", "model.num_layers", 64},
                 {"layer_norm_epsilon", "model.norm_epsilon", 1e-5},
                 {"tie_word_embeddings", "model.tie_embeddings", false},
                 {"initializer_range", "model.init_std", 0.1},
                 {"num_heads", "mamba.num_heads", 128},
                 {"head_dim", "mamba.head_dim", 64},
                 {"state_size", "mamba.state_size", 128},
                 {"n_groups", "mamba.num_groups", 8},
                 {"conv_kernel", "mamba.conv_width", 4},
                 {"use_conv_bias", "mamba.conv_bias", true},
                 {"use_bias", "mamba.input_bias", false},
                 {"use_bias", "mamba.output_bias", false},
                 {"chunk_size", "mamba.chunk_size", 256},
                 {"time_step_min", "mamba.init_min_dt", 0.001},
                 {"time_step_max", "mamba.init_max_dt", 0.1},
                 {"time_step_floor", "mamba.init_dt_floor", 1e-4}},
      .fixed_fields = {{"hidden_act", "silu", "the convolution is followed by SiLU"}},
      .fixed_settings = {{"model.layer_pattern", "M"},
                         {"model.num_attention_heads", "0"},
                         {"mamba.norm", "after_gate"}},
      .groups = {{read_width, write_width}, time_step_limit(), unused_fields(kUnused)},
      .tensors = joined<TensorRule>(
          {pure_scan_tensors(), mamba2_tensors("backbone.layers.{layer}.mixer.")}),
      .dropped = {{"lm_head.weight", DroppedTensor::Reason::kTiedHead}},
  };
}

}  // namespace switchyard
