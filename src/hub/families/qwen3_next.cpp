#include <string_view>

#include "base/error.h"
#include "config/layer_pattern.h"
#include "config/layer_set.h"
#include "hub/field_groups.h"

// Qwen3-Next: gated delta nets and gated attention, each with experts (modeling_qwen3_next.py).
namespace switchyard {
namespace {

using Json = nlohmann::json;

constexpr int64_t kAttentionEvery = 4;
constexpr std::string_view kAttention = "full_attention";
constexpr std::string_view kDeltaNet = "linear_attention";

// layer_types, or every full_attention_interval-th layer with attention. Which layers have experts
// has been read, as a list that the pattern takes over.
void read_layers(HfConfig& fields, SettingValues& settings) {
  const int64_t num_layers = whole_value(settings, "model.num_layers");
  const auto types = fields.get("layer_types", std::vector<std::string>());
  const auto interval = fields.get("full_attention_interval", kAttentionEvery);
  check<ConfigError>(types.empty() || std::ssize(types) == num_layers,
                     "{}: layer_types lists {} layers, num_hidden_layers is {}", fields.source(),
                     types.size(), num_layers);
  check<ConfigError>(interval > 0, "{}: full_attention_interval is {}: expected 1 or more",
                     fields.source(), interval);
  const std::vector<std::string> listed = settings.at("moe.layers").items;
  const bool has_experts = whole_value(settings, "moe.num_experts") > 0;
  const std::vector<bool> is_moe =
      listed.empty() ? std::vector<bool>(static_cast<size_t>(num_layers), has_experts)
                     : layer_set("moe.layers", listed, num_layers);
  std::vector<LayerKinds> layers;
  for (size_t i = 0; i < is_moe.size(); ++i) {
    const bool is_attention =
        types.empty() ? (static_cast<int64_t>(i) + 1) % interval == 0 : types[i] == kAttention;
    check<ConfigError>(types.empty() || is_attention || types[i] == kDeltaNet,
                       "{}: layer_types has \"{}\"; known are: {}, {}", fields.source(),
                       types.empty() ? "" : types[i], kDeltaNet, kAttention);
    layers.push_back({{is_attention ? MixerKind::kAttention : MixerKind::kDeltaNet},
                      has_experts && is_moe[i] ? FeedForward::kMoe : FeedForward::kDense});
  }
  set_value(settings, "model.layer_pattern", layer_pattern_of(layers));
  settings.erase("moe.layers");
}

void write_layers(const Config& config, Json& fields) {
  std::vector<std::string> types;
  for (const LayerKinds& layer : layer_kinds(config)) {
    types.emplace_back(layer.has(MixerKind::kAttention) ? kAttention : kDeltaNet);
  }
  fields["layer_types"] = types;
}

std::vector<TensorRule> delta_net_tensors() {
  const std::string theirs = in_layer("linear_attn.");
  const std::string ours = logical("delta_net.");
  std::vector<TensorRule> rules = {
      {theirs + "conv1d.weight", ours + "conv_q", {}, {2, 0, 1}},
      {theirs + "conv1d.weight", ours + "conv_k", {}, {2, 0, 1}},
      {theirs + "conv1d.weight", ours + "conv_v", {}, {3, 0, 1}},
      {theirs + "A_log", ours + "a_log", {}, {kAllDims}},
      {theirs + "dt_bias", ours + "dt_bias", {}, {kAllDims}},
      {theirs + "norm.weight", ours + "norm"},
      {theirs + "out_proj.weight", ours + "output", {}, {1, 3}},
  };
  // Key head by key head, with the value heads that read it.
  const auto interleave = [&](const char* tensor, const char* piece, int64_t dims) {
    rules.push_back({.tensor = theirs + tensor,
                     .logical = ours + piece,
                     .dims = {dims, 1},
                     .is_interleaved = true});
  };
  interleave("in_proj_qkvz.weight", "q", 2);
  interleave("in_proj_qkvz.weight", "k", 2);
  interleave("in_proj_qkvz.weight", "v", 3);
  interleave("in_proj_qkvz.weight", "z", 3);
  interleave("in_proj_ba.weight", "b", 2);
  interleave("in_proj_ba.weight", "a", 2);
  return rules;
}

// q_proj makes the query and the gate of a head, head by head.
std::vector<TensorRule> attention_tensors() {
  std::vector<TensorRule> rules = joined<TensorRule>({decoder_tensors(), qkv_bias_tensors()});
  std::vector<TensorRule> gates;
  for (TensorRule& rule : rules) {
    const bool is_bias = rule.logical == logical("attention.q_bias");
    if (is_bias || rule.logical == logical("attention.q")) {
      rule.is_interleaved = true;
      rule.dims.front() = 2;
      gates.push_back(rule);
      gates.back().logical = logical(is_bias ? "attention.gate_bias" : "attention.gate");
    }
  }
  rules.insert(rules.end(), gates.begin(), gates.end());
  return rules;
}

std::vector<FieldRule> delta_net_fields() {
  return {{"linear_num_key_heads", "delta_net.num_key_heads", 16},
          {"linear_num_value_heads", "delta_net.num_value_heads", 32},
          {"linear_key_head_dim", "delta_net.key_head_dim", 128},
          {"linear_value_head_dim", "delta_net.value_head_dim", 128},
          {"linear_conv_kernel_dim", "delta_net.conv_width", 4}};
}

}  // namespace

ModelFamily qwen3_next_family() {
  return {
      .model_type = "qwen3_next",
      .architecture = "Qwen3NextForCausalLM",
      .fields = joined<FieldRule>(
          {decoder_fields({.vocab_size = 151936,
                           .hidden_size = 2048,
                           .num_layers = 48,
                           .num_heads = 16,
                           .num_kv_heads = 2,
                           .max_position = 32768,
                           .norm_epsilon = 1e-6}),
           {{"intermediate_size", "model.ffn_hidden_size", 5632},
            {"head_dim", "model.head_dim", 256},
            {"attention_bias", "attention.qkv_bias", false},
            {"attention_bias", "attention.output_bias", false},
            {"num_experts", "moe.num_experts", 512, "", {"num_local_experts"}},
            {"num_experts_per_tok", "moe.top_k", 10},
            {"norm_topk_prob", "moe.renormalize", true},
            {"moe_intermediate_size", "moe.ffn_hidden_size", 512},
            {"shared_expert_intermediate_size", "moe.shared_expert_ffn_hidden_size", 512}},
           delta_net_fields()}),
      .fixed_fields = {{"attention_dropout", 0.0, "dropout is not implemented"},
                       {"hidden_act", "silu", "it also follows the convolution"}},
      .fixed_settings = {{"attention.qk_norm", "head"},
                         {"attention.output_gate", "true"},
                         {"model.norm_plus_one", "true"},
                         {"moe.pre_softmax", "true"},
                         {"moe.shared_expert_gate", "true"}},
      .groups = {partial_rope_fields(10000, 0.25),
                 sparse_layers(),
                 balance_loss(0.001),
                 {read_layers, write_layers},
                 unused_fields({"use_sliding_window"})},
      .tensors = joined<TensorRule>({attention_tensors(), output_bias_tensors(), qk_norm_tensors(),
                                     delta_net_tensors(), mlp_tensors(), expert_tensors(),
                                     gated_shared_expert_tensors()}),
      .dropped = decoder_dropped(),
  };
}

}  // namespace switchyard
