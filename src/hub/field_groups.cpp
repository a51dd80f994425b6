#include "hub/field_groups.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <string_view>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/error.h"
#include "config/layer_set.h"
#include "config/values.h"
#include "hub/layer_lists.h"

namespace switchyard {
namespace {

using Json = nlohmann::json;

// --- Rotary positions

struct RopeField {
  std::string_view field;
  std::string_view setting;
  std::string_view standard;  // where the file leaves it out
};
constexpr std::array<RopeField, 10> kRopeFields = {{
    {"factor", "rope.factor", "1"},
    {"original_max_position_embeddings", "rope.original_max_position", "0"},
    {"low_freq_factor", "rope.low_freq_factor", "1"},
    {"high_freq_factor", "rope.high_freq_factor", "4"},
    {"beta_fast", "rope.beta_fast", "32"},
    {"beta_slow", "rope.beta_slow", "1"},
    {"mscale", "rope.mscale", "0"},
    {"mscale_all_dim", "rope.mscale_all_dim", "0"},
    {"attention_factor", "rope.attention_factor", "0"},
    {"truncate", "rope.truncate", "true"},
}};
constexpr std::array<std::string_view, 5> kRopeTypes = {"default", "linear", "dynamic", "llama3",
                                                        "yarn"};

constexpr const char* kOriginalLength = "original_max_position_embeddings";

bool needs_original_length(const std::string& type) {
  return type == "llama3" || type == "yarn";
}

// Which of the fields a type of rotary positions has.
bool belongs_to(std::string_view field, const std::string& type) {
  if (field == "factor") {
    return type != "default";
  }
  if (field == "original_max_position_embeddings") {
    return needs_original_length(type);
  }
  const bool is_llama3 = field == "low_freq_factor" || field == "high_freq_factor";
  return type == (is_llama3 ? "llama3" : "yarn");
}

// The field within the parameters, or else at the top; null when neither has it.
Json rope_value(HfConfig& fields, Json& parameters, const std::string& name) {
  const Json* at_top = fields.find(name);
  const auto inside = parameters.find(name);
  if (inside != parameters.end()) {
    Json value = *inside;
    parameters.erase(inside);
    return value;
  }
  return at_top == nullptr ? Json(nullptr) : *at_top;
}

std::string rope_type(Json& parameters, const std::string& source) {
  std::string type = "default";
  for (const char* name : {"type", "rope_type"}) {  // the second wins, as in transformers
    const auto at = parameters.find(name);
    if (at != parameters.end()) {
      check<ConfigError>(at->is_string(), "{}: {} of its rotary positions is {}: expected a word",
                         source, name, at->dump());
      type = at->get<std::string>();
      parameters.erase(at);
    }
  }
  check<ConfigError>(std::find(kRopeTypes.begin(), kRopeTypes.end(), type) != kRopeTypes.end(),
                     "{}: unknown RoPE type \"{}\"; known are: {}", source, type,
                     fmt::join(kRopeTypes, ", "));
  return type;
}

// --- Windows

std::vector<std::string> layer_types(const std::vector<int64_t>& windows) {
  std::vector<std::string> types;
  for (const int64_t window : windows) {
    types.emplace_back(window > 0 ? "sliding_attention" : "full_attention");
  }
  return types;
}

bool any_of(const std::vector<bool>& flags) {
  return std::find(flags.begin(), flags.end(), true) != flags.end();
}

void set_windows(SettingValues& settings, const std::vector<bool>& has_window, int64_t window) {
  const bool is_used = window > 0 && any_of(has_window);
  set_value(settings, "attention.window", std::to_string(is_used ? window : 0));
  settings["attention.window_layers"] = {
      is_used ? layer_set_of(has_window) : std::vector<std::string>(), true};
}

constexpr int64_t kStandardWindow = 4096;
constexpr int64_t kStandardWindowLayers = 28;

// 0 for none.
int64_t read_window(HfConfig& fields) {
  const bool is_used = fields.get("use_sliding_window", false);
  const Json* given = fields.find("sliding_window");
  if (!is_used || (given != nullptr && given->is_null())) {
    return 0;
  }
  const int64_t window = fields.get("sliding_window", kStandardWindow);
  check<ConfigError>(window > 0,
                     "{}: sliding_window is {}: expected null for none, or a number from 1 on",
                     fields.source(), window);
  return window;
}

// Which layers have a window by layer_types; empty where it is not given.
std::vector<bool> read_layer_types(HfConfig& fields, const SettingValues& settings) {
  const auto types = fields.get("layer_types", std::vector<std::string>());
  const int64_t num_layers = whole_value(settings, "model.num_layers");
  check<ConfigError>(types.empty() || static_cast<int64_t>(types.size()) == num_layers,
                     "{}: layer_types lists {} layers, num_hidden_layers is {}", fields.source(),
                     types.size(), num_layers);
  std::vector<bool> has_window;
  for (const std::string& type : types) {
    check<ConfigError>(type == "sliding_attention" || type == "full_attention",
                       "{}: layer_types has \"{}\"; known are: full_attention, sliding_attention",
                       fields.source(), type);
    has_window.push_back(type == "sliding_attention");
  }
  return has_window;
}

// `standard`: whether layer i has a window, where layer_types is not given.
void read_windows(HfConfig& fields, SettingValues& settings,
                  bool (*standard)(int64_t layer, int64_t max_window_layers)) {
  const int64_t window = read_window(fields);
  const bool uses_windows = fields.get("use_sliding_window", false);
  const int64_t limit = fields.get("max_window_layers", kStandardWindowLayers);
  std::vector<bool> has_window = read_layer_types(fields, settings);
  check<ConfigError>(!any_of(has_window) || window > 0 || !uses_windows,
                     "{}: layer_types has \"sliding_attention\", but sliding_window is null",
                     fields.source());
  const bool is_listed = !has_window.empty();
  for (int64_t layer = 0; !is_listed && layer < whole_value(settings, "model.num_layers");
       ++layer) {
    has_window.push_back(standard(layer, limit));
  }
  set_windows(settings, has_window, window);
}

void write_windows(const Config& config, Json& fields) {
  const bool is_used = config.attention.window > 0;
  fields["use_sliding_window"] = is_used;
  fields["sliding_window"] = is_used ? Json(config.attention.window) : Json(nullptr);
  fields["max_window_layers"] = config.model.num_layers;
  fields["layer_types"] = layer_types(windows_of(config));
}

int64_t num_moe_layers(const std::vector<bool>& layers) {
  return std::count(layers.begin(), layers.end(), true);
}

// How many times longer a yarn model has become, where no field says it.
double factor_of_lengths(int64_t max_position, const Json& original_length,
                         const std::string& source) {
  check<ConfigError>(original_length.is_number() && original_length > 0,
                     "{}: rope_parameters has neither factor nor {}, which type \"yarn\" needs",
                     source, kOriginalLength);
  return static_cast<double>(max_position) / original_length.get<double>();
}

// Fields that transformers reads without a default.
bool is_needed(const std::string& field, const std::string& type) {
  if (field == "low_freq_factor" || field == "high_freq_factor") {
    return type == "llama3";
  }
  return field == "factor" && (type == "linear" || type == "dynamic" || type == "llama3");
}

// The share of a head that is rotated.
void read_partial_factor(const Json& value, const RopeStandards& standards, HfConfig& fields,
                         SettingValues& settings) {
  if (standards.partial_factor == 0) {
    check<ConfigError>(value.is_null() || value == 1,
                       "{}: partial_rotary_factor is {}: transformers' class of this family "
                       "rotates whole heads and does not follow it; remove it, or set it to 1",
                       fields.source(), value.dump());
    return;
  }
  check<ConfigError>(value.is_null() || (value.is_number() && value > 0 && value <= 1),
                     "{}: partial_rotary_factor is {}: expected a number above 0, up to 1",
                     fields.source(), value.dump());
  set_value(settings, "rope.partial_factor",
            value.is_null() ? print_value(standards.partial_factor) : value.dump());
}

}  // namespace

std::string in_layer(const std::string& name) {
  return "model.layers.{layer}." + name;
}
std::string logical(const std::string& name) {
  return "layers.{layer}." + name;
}

void set_value(SettingValues& settings, const std::string& name, const std::string& value) {
  settings[name] = {{value}, false};
}

int64_t whole_value(const SettingValues& settings, const std::string& name) {
  return std::stoll(settings.at(name).items.front());
}

void read_rope(HfConfig& fields, SettingValues& settings, const RopeStandards& standards) {
  const Json* found = fields.find("rope_parameters");
  const Json* scaling = fields.find("rope_scaling");
  if (scaling != nullptr && !scaling->is_null() && !scaling->empty()) {
    found = scaling;
  }
  Json parameters = found == nullptr || found->is_null() ? Json::object() : *found;
  check<ConfigError>(parameters.is_object(), "{}: rope_parameters is {}: expected an object",
                     fields.source(), parameters.dump());
  const std::string type = rope_type(parameters, fields.source());
  set_value(settings, "rope.type", type);
  const bool has_null_base =
      parameters.contains("rope_theta") && parameters["rope_theta"].is_null();
  const auto base = rope_value(fields, parameters, "rope_theta");
  check<ConfigError>((base.is_null() && !has_null_base) || base.is_number(),
                     "{}: rope_theta is {}: expected a number", fields.source(), base.dump());
  set_value(settings, "rope.base", base.is_null() ? print_value(standards.base) : base.dump());
  const auto partial = rope_value(fields, parameters, "partial_rotary_factor");
  read_partial_factor(partial, standards, fields, settings);
  const bool has_null_length = parameters.contains(kOriginalLength) &&
                               parameters[kOriginalLength].is_null() && needs_original_length(type);
  check<ConfigError>(!has_null_length,
                     "{}: {} is null: type \"{}\" needs a number, or no such field",
                     fields.source(), kOriginalLength, type);
  const Json original_length = rope_value(fields, parameters, kOriginalLength);
  for (const RopeField& rope : kRopeFields) {
    const std::string field(rope.field);
    const Json value =
        field == kOriginalLength ? original_length : parameters.value(field, Json(nullptr));
    parameters.erase(field);
    if (!belongs_to(field, type)) {
      continue;
    }
    const bool is_right_type = field == "truncate" ? value.is_boolean() : value.is_number();
    check<ConfigError>(value.is_null() || is_right_type,
                       "{}: {} of its rotary positions is {}: expected {}", fields.source(), field,
                       value.dump(), field == "truncate" ? "true or false" : "a number");
    // In the settings 0 stands for none, in these fields it would be a number.
    check<ConfigError>(value != 0 || (field != kOriginalLength && field != "attention_factor"),
                       "{}: {} of its rotary positions is {}: expected a number above 0",
                       fields.source(), field, value.dump());
    check<ConfigError>(!value.is_null() || !is_needed(field, type),
                       "{}: rope_parameters has no {}, which type \"{}\" needs", fields.source(),
                       field, type);
    std::string text = value.is_null() ? std::string(rope.standard) : value.dump();
    if (value.is_null() && field == kOriginalLength) {
      text = settings.at("model.max_position").items.front();
    }
    if (value.is_null() && field == "factor" && type == "yarn") {
      text = print_value(factor_of_lengths(whole_value(settings, "model.max_position"),
                                           original_length, fields.source()));
    }
    set_value(settings, std::string(rope.setting), text);
  }
  std::vector<std::string> left;
  for (const auto& [name, value] : parameters.items()) {
    left.push_back(name);
  }
  check<ConfigError>(left.empty(), "{}: rope_parameters has the unknown {} {} for type \"{}\"",
                     fields.source(), left.size() == 1 ? "field" : "fields", fmt::join(left, ", "),
                     type);
}

void write_rope(const Config& config, Json& fields) {
  const RopeConfig& rope = config.rope;
  const std::string type(word_of(kRopeTypeWords, rope.type));
  Json parameters = {{"rope_type", type}, {"rope_theta", rope.base}};
  if (rope.partial_factor != 1) {
    parameters["partial_rotary_factor"] = rope.partial_factor;
  }
  if (type != "default") {
    parameters["factor"] = rope.factor;
  }
  if (needs_original_length(type)) {
    parameters["original_max_position_embeddings"] = rope.original_max_position;
  }
  if (type == "llama3") {
    parameters["low_freq_factor"] = rope.low_freq_factor;
    parameters["high_freq_factor"] = rope.high_freq_factor;
  }
  if (type == "yarn") {
    parameters["beta_fast"] = rope.beta_fast;
    parameters["beta_slow"] = rope.beta_slow;
    parameters["truncate"] = rope.truncate;
    const auto unless_zero = [&](const char* name, double value) {
      if (value != 0) {
        parameters[name] = value;
      }
    };
    unless_zero("mscale", rope.mscale);
    unless_zero("mscale_all_dim", rope.mscale_all_dim);
    unless_zero("attention_factor", rope.attention_factor);
  }
  fields["rope_parameters"] = std::move(parameters);
}

FieldGroup rope_fields(double base) {
  return {[=](HfConfig& fields, SettingValues& settings) { read_rope(fields, settings, {base}); },
          write_rope};
}

FieldGroup partial_rope_fields(double base, double partial_factor) {
  return {[=](HfConfig& fields, SettingValues& settings) {
            read_rope(fields, settings, {base, partial_factor});
          },
          write_rope};
}

std::optional<double> read_rotary_dim(HfConfig& fields, const SettingValues& settings) {
  const Json* dim = fields.find("rotary_dim");
  if (dim == nullptr || dim->is_null()) {
    return std::nullopt;
  }
  const int64_t head_dim = whole_value(settings, "model.head_dim");
  check<ConfigError>(dim->is_number_integer() && *dim > 0 && *dim <= head_dim,
                     "{}: rotary_dim is {}: expected a number from 1 to head_dim ({})",
                     fields.source(), dim->dump(), head_dim);
  return dim->get<double>() / static_cast<double>(head_dim);
}

FieldGroup query_norm(bool standard) {
  return {[=](HfConfig& fields, SettingValues& settings) {
            set_value(settings, "attention.qk_norm",
                      fields.get("use_qk_norm", standard) ? "head" : "none");
          },
          [](const Config& config, Json& fields) {
            fields["use_qk_norm"] = config.attention.qk_norm == QkNormKind::kHead;
          }};
}

FieldGroup window_from_layer_on() {
  return {[](HfConfig& fields, SettingValues& settings) {
            read_windows(fields, settings,
                         [](int64_t layer, int64_t limit) { return layer >= limit; });
          },
          write_windows};
}

FieldGroup window_on_even_layers() {
  return {[](HfConfig& fields, SettingValues& settings) {
            read_windows(fields, settings, [](int64_t layer, int64_t limit) {
              return layer % 2 == 0 && layer < limit;
            });
          },
          write_windows};
}

FieldGroup window_on_all_layers() {
  return {[](HfConfig& fields, SettingValues& settings) {
            fields.mark_read("max_window_layers");
            set_value(settings, "attention.window", std::to_string(read_window(fields)));
          },
          [](const Config& config, Json& fields) {
            const bool is_used = config.attention.window > 0;
            fields["use_sliding_window"] = is_used;
            fields["sliding_window"] = is_used ? Json(config.attention.window) : Json(nullptr);
          }};
}

FieldGroup sparse_layers() {
  return {[](HfConfig& fields, SettingValues& settings) {
            const int64_t step = fields.get("decoder_sparse_step", int64_t{1});
            const auto dense = fields.get("mlp_only_layers", std::vector<int64_t>());
            check<ConfigError>(step >= 1, "{}: decoder_sparse_step is {}: expected 1 or more",
                               fields.source(), step);
            std::vector<bool> is_moe;
            for (int64_t layer = 0; layer < whole_value(settings, "model.num_layers"); ++layer) {
              is_moe.push_back((layer + 1) % step == 0 &&
                               std::find(dense.begin(), dense.end(), layer) == dense.end());
            }
            if (num_moe_layers(is_moe) == 0) {
              set_value(settings, "moe.num_experts", "0");
            }
            settings["moe.layers"] = {layer_set_of(is_moe), true};
          },
          [](const Config& config, Json& fields) {
            std::vector<int64_t> dense;
            const std::vector<bool> is_moe = moe_layers_of(config);
            for (size_t layer = 0; layer < is_moe.size(); ++layer) {
              if (!is_moe[layer]) {
                dense.push_back(static_cast<int64_t>(layer));
              }
            }
            fields["decoder_sparse_step"] = 1;
            fields["mlp_only_layers"] = dense;
          }};
}

namespace {

// MoE layers of what has been read so far.
double moe_layers_read(const SettingValues& settings) {
  const auto listed = settings.find("moe.layers");
  const int64_t num_layers = whole_value(settings, "model.num_layers");
  if (listed == settings.end() || listed->second.items.empty()) {
    return static_cast<double>(num_layers);
  }
  return static_cast<double>(
      num_moe_layers(layer_set("moe.layers", listed->second.items, num_layers)));
}

}  // namespace

void read_windows_by_period(HfConfig& fields, SettingValues& settings, int64_t standard_window,
                            int64_t period) {
  check<ConfigError>(period >= 1, "{}: sliding_window_pattern is {}: expected 1 or more",
                     fields.source(), period);
  const Json* given = fields.find("sliding_window");
  const bool is_null = given != nullptr && given->is_null();
  const int64_t window = is_null ? 0 : fields.get("sliding_window", standard_window);
  std::vector<bool> has_window = read_layer_types(fields, settings);
  check<ConfigError>(window > 0 || (is_null && !any_of(has_window)),
                     "{}: sliding_window is {}: expected a number from 1 on", fields.source(),
                     is_null ? "null" : std::to_string(window));
  const bool is_listed = !has_window.empty();
  for (int64_t layer = 0; !is_listed && layer < whole_value(settings, "model.num_layers");
       ++layer) {
    has_window.push_back((layer + 1) % period != 0);
  }
  set_windows(settings, has_window, window);
}

void write_layer_types(const Config& config, Json& fields) {
  const bool is_used = config.attention.window > 0;
  fields["sliding_window"] = is_used ? Json(config.attention.window) : Json(nullptr);
  fields["layer_types"] = layer_types(windows_of(config));
}

FieldGroup shared_experts(const std::string& field, int64_t standard, int64_t least) {
  return {[=](HfConfig& fields, SettingValues& settings) {
            const int64_t number = fields.get(field, standard);
            check<ConfigError>(number >= least, "{}: {} is {}: expected {} or more",
                               fields.source(), field, number, least);
            set_value(settings, "moe.shared_expert_ffn_hidden_size",
                      std::to_string(number * whole_value(settings, "moe.ffn_hidden_size")));
          },
          [=](const Config& config, Json& fields) {
            const MoeConfig& moe = config.moe;
            fields[field] = moe.ffn_hidden_size == 0
                                ? 0
                                : moe.shared_expert_ffn_hidden_size / moe.ffn_hidden_size;
          }};
}

FieldGroup balance_loss(double standard) {
  return {[=](HfConfig& fields, SettingValues& settings) {
            const double theirs = fields.get("router_aux_loss_coef", standard);
            const auto top_k = static_cast<double>(whole_value(settings, "moe.top_k"));
            const double layers = moe_layers_read(settings);
            set_value(settings, "moe.aux_loss_coeff",
                      print_value(layers > 0 ? theirs * top_k / layers : 0.0));
          },
          [](const Config& config, Json& fields) {
            const auto layers = static_cast<double>(num_moe_layers(moe_layers_of(config)));
            const double ours = config.moe.aux_loss_coeff;
            fields["router_aux_loss_coef"] = ours * layers / static_cast<double>(config.moe.top_k);
          }};
}

FieldGroup unused_fields(const std::vector<std::string>& names) {
  return {[=](HfConfig& fields, SettingValues&) {
            for (const std::string& name : names) {
              fields.mark_read(name);
            }
          },
          [](const Config&, Json&) {}};
}

std::vector<FieldRule> decoder_fields(const DecoderStandards& standards) {
  return {
      {"vocab_size", "model.vocab_size", standards.vocab_size},
      {"hidden_size", "model.hidden_size", standards.hidden_size},
      {"num_hidden_layers", "model.num_layers", standards.num_layers},
      {"num_attention_heads", "model.num_attention_heads", standards.num_heads},
      {"num_key_value_heads", "model.num_query_groups", standards.num_kv_heads, "0"},
      {"max_position_embeddings", "model.max_position", standards.max_position},
      {standards.epsilon_field, "model.norm_epsilon", standards.norm_epsilon},
      {"tie_word_embeddings", "model.tie_embeddings", standards.tie_embeddings},
      {"initializer_range", "model.init_std", 0.02},
      {.field = standards.activation_field,
       .setting = "model.activation",
       .standard = standards.activation,
       .words = activation_words()},
  };
}

std::vector<std::pair<std::string, std::string>> activation_words() {
  return {{"silu", "silu"},          {"swish", "silu"},
          {"gelu", "gelu"},          {"gelu_pytorch_tanh", "gelu_tanh"},
          {"gelu_new", "gelu_tanh"}, {"relu", "relu"},
          {"relu2", "relu_squared"}, {"quick_gelu", "quick_gelu"}};
}

std::vector<TensorRule> decoder_tensors() {
  return {
      {"model.embed_tokens.weight", "embedding.weight"},
      {in_layer("input_layernorm.weight"), logical("mixer_norm.weight")},
      {in_layer("self_attn.q_proj.weight"), logical("attention.q"), {}, {2, 1}},
      {in_layer("self_attn.k_proj.weight"), logical("attention.k"), {}, {2, 1}},
      {in_layer("self_attn.v_proj.weight"), logical("attention.v"), {}, {2, 1}},
      {in_layer("self_attn.o_proj.weight"), logical("attention.o"), {}, {1, 2}},
      {in_layer("post_attention_layernorm.weight"), logical("mlp_norm.weight")},
      {"model.norm.weight", "final_norm.weight"},
      {"lm_head.weight", "head.weight"},
  };
}

std::vector<TensorRule> qkv_bias_tensors() {
  return {{in_layer("self_attn.q_proj.bias"), logical("attention.q_bias"), {}, {kAllDims}},
          {in_layer("self_attn.k_proj.bias"), logical("attention.k_bias"), {}, {kAllDims}},
          {in_layer("self_attn.v_proj.bias"), logical("attention.v_bias"), {}, {kAllDims}}};
}

std::vector<TensorRule> output_bias_tensors() {
  return {{in_layer("self_attn.o_proj.bias"), logical("attention.o_bias")}};
}

std::vector<TensorRule> qk_norm_tensors() {
  return {{in_layer("self_attn.q_norm.weight"), logical("attention.q_norm"), {}, {kAllDims}},
          {in_layer("self_attn.k_norm.weight"), logical("attention.k_norm"), {}, {kAllDims}}};
}

std::vector<TensorRule> mlp_tensors() {
  return {{in_layer("mlp.gate_proj.weight"), logical("mlp.gate_up"), {0}},
          {in_layer("mlp.up_proj.weight"), logical("mlp.gate_up"), {1}},
          {in_layer("mlp.down_proj.weight"), logical("mlp.down")}};
}

std::vector<TensorRule> mlp_bias_tensors() {
  return {{in_layer("mlp.gate_proj.bias"), logical("mlp.gate_up_bias"), {0}},
          {in_layer("mlp.up_proj.bias"), logical("mlp.gate_up_bias"), {1}},
          {in_layer("mlp.down_proj.bias"), logical("mlp.down_bias")}};
}

std::vector<TensorRule> expert_tensors() {
  const std::string expert = in_layer("mlp.experts.{expert}.");
  return {
      {in_layer("mlp.gate.weight"), logical("moe.router.weight")},
      {expert + "gate_proj.weight", logical("moe.experts.gate_up"), {kExpertIndex, 0}},
      {expert + "up_proj.weight", logical("moe.experts.gate_up"), {kExpertIndex, 1}},
      {expert + "down_proj.weight", logical("moe.experts.down"), {kExpertIndex}},
      {in_layer("mlp.experts.gate_up_proj"), logical("moe.experts.gate_up"), {}, {1, 2, 1}, true},
      {in_layer("mlp.experts.down_proj"), logical("moe.experts.down"), {}, {}, true},
  };
}

std::vector<TensorRule> expert_bias_tensors() {
  return {{in_layer("mlp.gate.e_score_correction_bias"), logical("moe.router.expert_bias")}};
}

std::vector<TensorRule> gated_shared_expert_tensors() {
  return {
      {in_layer("mlp.shared_expert.gate_proj.weight"), logical("moe.shared_expert.gate_up"), {0}},
      {in_layer("mlp.shared_expert.up_proj.weight"), logical("moe.shared_expert.gate_up"), {1}},
      {in_layer("mlp.shared_expert.down_proj.weight"), logical("moe.shared_expert.down")},
      {in_layer("mlp.shared_expert_gate.weight"), logical("moe.shared_expert_gate.weight")},
  };
}

std::vector<TensorRule> shared_experts_tensors() {
  const std::string shared = in_layer("mlp.shared_experts.");
  return {{shared + "gate_proj.weight", logical("moe.shared_expert.gate_up"), {0}},
          {shared + "up_proj.weight", logical("moe.shared_expert.gate_up"), {1}},
          {shared + "down_proj.weight", logical("moe.shared_expert.down")}};
}

std::vector<TensorRule> block_sparse_moe_tensors() {
  const std::string moe = in_layer("block_sparse_moe.");
  return {
      {moe + "gate.weight", logical("moe.router.weight")},
      {moe + "experts.{expert}.w1.weight", logical("moe.experts.gate_up"), {kExpertIndex, 0}},
      {moe + "experts.{expert}.w3.weight", logical("moe.experts.gate_up"), {kExpertIndex, 1}},
      {moe + "experts.{expert}.w2.weight", logical("moe.experts.down"), {kExpertIndex}},
  };
}

std::vector<DroppedTensor> decoder_dropped() {
  return {{in_layer("self_attn.rotary_emb.inv_freq"), DroppedTensor::Reason::kRotaryFrequencies},
          {"model.rotary_emb.inv_freq", DroppedTensor::Reason::kRotaryFrequencies},
          {"lm_head.weight", DroppedTensor::Reason::kTiedHead}};
}

}  // namespace switchyard
