#include <algorithm>
#include <array>

#include "base/error.h"
#include "config/mixer_sizes.h"
#include "config/values.h"
#include "hub/field_groups.h"
#include "hub/scan_fields.h"

// Falcon-H1: Mamba-2 and attention side by side, then an MLP (modeling_falcon_h1.py).
namespace switchyard {
namespace {

using Json = nlohmann::json;

const std::vector<std::string> kUnused = {
    "num_logits_to_keep", "mamba_use_mlp",   "mlp_expansion_factor", "time_step_min",
    "time_step_max",      "time_step_floor", "layers_block_type"};

constexpr std::array<const char*, 2> kMlpFactors = {"multipliers.mlp_gate",
                                                    "multipliers.mlp_output"};
constexpr std::array<const char*, 5> kMambaFactors = {"multipliers.mamba_z", "multipliers.mamba_x",
                                                      "multipliers.mamba_b", "multipliers.mamba_c",
                                                      "multipliers.mamba_dt"};

template <size_t kCount>
void read_factors(HfConfig& fields, SettingValues& settings, const char* field,
                  const std::array<const char*, kCount>& names) {
  const auto factors = fields.get(field, std::vector<double>(kCount, 1.0));
  check<ConfigError>(factors.size() == kCount, "{}: {} has {} numbers: expected {}",
                     fields.source(), field, factors.size(), kCount);
  for (size_t i = 0; i < kCount; ++i) {
    set_value(settings, names[i], print_value(factors[i]));
  }
}

// mamba_d_ssm is the width of all heads together, mamba_d_head that of one, or "auto".
void read_heads(HfConfig& fields, SettingValues& settings) {
  const Json* width = fields.find("mamba_d_ssm");
  const auto expand = fields.get("mamba_expand", int64_t{2});
  const int64_t inner = width != nullptr && width->is_null()
                            ? expand * whole_value(settings, "model.hidden_size")
                            : fields.get("mamba_d_ssm", int64_t{1024});
  const auto heads = fields.get("mamba_n_heads", int64_t{128});
  const Json* given = fields.find("mamba_d_head");
  const bool is_auto = given == nullptr || *given == "auto";
  const int64_t head_dim =
      is_auto ? inner / std::max<int64_t>(heads, 1) : fields.get("mamba_d_head", int64_t{0});
  check<ConfigError>(heads > 0 && heads * head_dim == inner,
                     "{}: mamba_n_heads x mamba_d_head ({} x {}) must be the width of the Mamba "
                     "layer ({})",
                     fields.source(), heads, head_dim, inner);
  set_value(settings, "mamba.num_heads", std::to_string(heads));
  set_value(settings, "mamba.head_dim", std::to_string(head_dim));
}

void write_heads(const Config& config, Json& fields) {
  const int64_t heads = mamba2_heads(config);
  fields["mamba_n_heads"] = heads;
  fields["mamba_d_head"] = config.mamba.head_dim;
  fields["mamba_d_ssm"] = heads * config.mamba.head_dim;
}

void read_norm(HfConfig& fields, SettingValues& settings) {
  const bool is_before = fields.get("mamba_norm_before_gate", true);
  const bool has_norm = fields.get("mamba_rms_norm", false);
  set_value(settings, "mamba.norm", has_norm ? (is_before ? "before_gate" : "after_gate") : "none");
}

void write_norm(const Config& config, Json& fields) {
  fields["mamba_rms_norm"] = config.mamba.norm != MambaNorm::kNone;
  fields["mamba_norm_before_gate"] = config.mamba.norm != MambaNorm::kAfterGate;
}

FieldGroup factors() {
  return {[](HfConfig& fields, SettingValues& settings) {
            read_factors(fields, settings, "mlp_multipliers", kMlpFactors);
            read_factors(fields, settings, "ssm_multipliers", kMambaFactors);
          },
          [](const Config& config, Json& fields) {
            const MultipliersConfig& all = config.multipliers;
            fields["mlp_multipliers"] = {all.mlp_gate, all.mlp_output};
            fields["ssm_multipliers"] = {all.mamba_z, all.mamba_x, all.mamba_b, all.mamba_c,
                                         all.mamba_dt};
          }};
}

std::vector<FieldRule> mamba_fields() {
  return {{"mamba_n_groups", "mamba.num_groups", 1},
          {"mamba_d_state", "mamba.state_size", 256},
          {"mamba_d_conv", "mamba.conv_width", 4},
          {"mamba_chunk_size", "mamba.chunk_size", 256},
          {"mamba_conv_bias", "mamba.conv_bias", true},
          {"mamba_proj_bias", "mamba.input_bias", false},
          {"projectors_bias", "mamba.output_bias", false}};
}

std::vector<FieldRule> factor_fields() {
  return {{"lm_head_multiplier", "multipliers.logits", 1.0},
          {"embedding_multiplier", "multipliers.embedding", 1.0},
          {"key_multiplier", "multipliers.key", 1.0},
          {"attention_in_multiplier", "multipliers.attention_input", 1.0},
          {"attention_out_multiplier", "multipliers.attention_output", 1.0},
          {"ssm_in_multiplier", "multipliers.mamba_input", 1.0},
          {"ssm_out_multiplier", "multipliers.mamba_output", 1.0}};
}

// Those of other decoders, with this family's names of norms and of the MLP.
std::vector<TensorRule> renamed(std::vector<TensorRule> rules) {
  const std::pair<std::string, std::string> names[] = {
      {".post_attention_layernorm.", ".pre_ff_layernorm."},
      {"model.norm.", "model.final_layernorm."},
      {".mlp.", ".feed_forward."}};
  for (TensorRule& rule : rules) {
    for (const auto& [from, to] : names) {
      if (const size_t at = rule.tensor.find(from); at != std::string::npos) {
        rule.tensor.replace(at, from.size(), to);
      }
    }
  }
  return rules;
}

}  // namespace

ModelFamily falcon_h1_family() {
  return {
      .model_type = "falcon_h1",
      .architecture = "FalconH1ForCausalLM",
      .fields = joined<FieldRule>({decoder_fields({.vocab_size = 128000,
                                                   .hidden_size = 4096,
                                                   .num_layers = 32,
                                                   .num_heads = 32,
                                                   .num_kv_heads = 8,
                                                   .max_position = 8192,
                                                   .norm_epsilon = 1e-5}),
                                   {{"intermediate_size", "model.ffn_hidden_size", 14336},
                                    {"head_dim", "model.head_dim", nullptr, "0"},
                                    {"attention_bias", "attention.qkv_bias", false},
                                    {"attention_bias", "attention.output_bias", false},
                                    {"mlp_bias", "model.mlp_bias", false}},
                                   mamba_fields(),
                                   factor_fields()}),
      .fixed_fields = {{"attention_dropout", 0.0, "dropout is not implemented"},
                       {"hidden_act", "silu", "it also follows the convolution"}},
      .fixed_settings = {{"model.layer_pattern", "M*- "}},
      .groups = {rope_fields(10000),
                 {read_heads, write_heads},
                 {read_norm, write_norm},
                 factors(),
                 time_step_limit(),
                 unused_fields(kUnused)},
      .tensors =
          joined<TensorRule>({renamed(decoder_tensors()), qkv_bias_tensors(), output_bias_tensors(),
                              renamed(mlp_tensors()), renamed(mlp_bias_tensors()),
                              mamba2_tensors("model.layers.{layer}.mamba.")}),
      .dropped = decoder_dropped(),
  };
}

}  // namespace switchyard
