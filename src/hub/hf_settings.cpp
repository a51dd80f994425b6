#include "hub/hf_settings.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <set>
#include <string_view>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/error.h"
#include "config/idle_settings.h"
#include "config/layer_pattern.h"
#include "config/mixer_sizes.h"
#include "config/settings.h"
#include "hub/layer_lists.h"
#include "hub/quantization.h"

namespace switchyard {
namespace {

using Json = nlohmann::json;

std::string our_word(const FieldRule& rule, const std::string& theirs, const std::string& source) {
  std::vector<std::string> known;
  for (const auto& [their_word, our] : rule.words) {
    if (their_word == theirs) {
      return our;
    }
    known.push_back(their_word);
  }
  throw ConfigError(fmt::format("{}: {} is \"{}\"; known are: {}", source, rule.field, theirs,
                                fmt::join(known, ", ")));
}

const Setting& setting_of(const std::string& name) {
  const Setting* setting = find_setting(name);
  check<ShapeError>(setting != nullptr,
                    "a family's rule names the setting {}, which does not exist", name);
  return *setting;
}

// transformers refuses "2" and 2.0 where it expects a whole number, and 1 for true.
bool is_written_as(const FieldRule& rule, const Json& value) {
  const std::string& type = setting_of(rule.setting).type;
  if (type.starts_with("integer")) {
    return value.is_number_integer();
  }
  if (type.starts_with("number")) {
    return value.is_number();
  }
  if (type.starts_with("true")) {
    return value.is_boolean();
  }
  return value.is_string() || (type.starts_with("list") && value.is_array());
}

void read_field(const FieldRule& rule, HfConfig& fields, SettingValues& settings) {
  const Json* found = fields.find(rule.field, rule.old_names);
  const Json& value = found == nullptr ? rule.standard : *found;
  const std::string where = fmt::format("{}: {}", fields.source(), rule.field);
  if (value.is_null()) {
    check<ConfigError>(!rule.for_null.empty(), "{} is {}: this family needs a value", where,
                       found == nullptr ? "missing" : "null");
    settings[rule.setting] = {{rule.for_null}, false};
    return;
  }
  check<ConfigError>(is_written_as(rule, value), "{} is {}: expected {}", where, value.dump(),
                     setting_of(rule.setting).type);
  // 0 of these settings stands for null, and for nothing else, however it is written.
  const bool stands_for_null =
      !rule.for_null.empty() && value == Json::parse(rule.for_null, nullptr, false);
  check<ConfigError>(!stands_for_null, "{} is {}: expected null, or a number from 1 on", where,
                     value.dump());
  RawValue raw = raw_from_json(value, where);
  if (!rule.words.empty()) {
    raw.items = {our_word(rule, raw.items.front(), fields.source())};
  }
  settings[rule.setting] = std::move(raw);
}

Json field_value(const FieldRule& rule, const Config& config) {
  const std::string ours = setting_of(rule.setting).print(config);
  if (!rule.for_null.empty() && ours == rule.for_null) {
    return nullptr;
  }
  for (const auto& [their_word, our_word] : rule.words) {
    if (our_word == ours) {
      return their_word;
    }
  }
  Json value = Json::parse(ours, nullptr, /*allow_exceptions=*/false);
  if (value.is_number() && setting_of(rule.setting).type.starts_with("number")) {
    return value.get<double>();  // 2.0 for 2: transformers tells them apart
  }
  return value.is_discarded() ? Json(ours) : value;
}

// Of the section moe; the others decide how it is trained.
constexpr std::array<std::string_view, 20> kMoeSettings = {
    "moe.num_experts",     "moe.top_k",
    "moe.ffn_hidden_size", "moe.shared_expert_ffn_hidden_size",
    "moe.score_function",  "moe.pre_softmax",
    "moe.renormalize",     "moe.scaling_factor",
    "moe.expert_bias",     "moe.shared_expert_gate",
    "moe.num_groups",      "moe.group_top_k",
    "moe.group_score",     "moe.linear_bias",
    "moe.router_bias",     "moe.first_dense_layers",
    "moe.layers",          "moe.overrides",
    "moe.latent_size",     "moe.shared_expert_bias"};
// Compared layer by layer: one list can be written in many ways.
constexpr std::array<std::string_view, 4> kLayerLists = {
    "moe.layers", "moe.first_dense_layers", "attention.window_layers", "attention.window"};

// With zeros that stand for derived values filled in, and one of two ways to say the same:
// softmax over the chosen logits is softmax over all of them, renormalised.
Config spelled_out(Config config) {
  config.model.num_query_groups = config.model.query_groups();
  config.model.head_dim = config.model.head_size();
  if (config.attention.scale == 0) {
    config.attention.scale = 1 / std::sqrt(static_cast<double>(config.model.head_size()));
  }
  if (config.rope.window_base == 0 && config.rope.type == RopeType::kDefault) {
    config.rope.window_base = config.rope.base;
  }
  if (config.model.max_position == 0) {
    config.model.max_position = std::max(int64_t{1}, config.data.sequence_length);
  }
  const std::vector<LayerKinds> layers = layer_kinds(config);
  config.model.layer_pattern = layer_pattern_of(layers);
  if (std::any_of(layers.begin(), layers.end(),
                  [](const LayerKinds& layer) { return layer.has(MixerKind::kMamba2); })) {
    config.mamba.num_heads = mamba2_heads(config);
  }
  config.mamba.inner_size = mamba1_channels(config);
  config.mamba.dt_rank = mamba1_dt_rank(config);
  if (config.moe.score_function == ScoreFunction::kSoftmax && !config.moe.pre_softmax) {
    config.moe.pre_softmax = true;
    config.moe.renormalize = true;
  }
  return config;
}

template <size_t kCount>
bool is_among(const std::array<std::string_view, kCount>& names, std::string_view name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

// Settings that make no difference to the model, whatever they are.
std::set<std::string> names_without_meaning(Config config) {
  config.routing = {};  // acts in training only
  std::set<std::string> names = names_of_idle_settings(config);
  names.erase("moe.num_experts");  // where it is 0 it says so
  return names;
}

}  // namespace

SettingValues read_hf_settings(const ModelFamily& family, HfConfig& fields) {
  SettingValues settings;
  for (const FixedSetting& fixed : family.fixed_settings) {
    settings[fixed.setting] = {{fixed.value}, false};
  }
  for (const FieldRule& rule : family.fields) {
    read_field(rule, fields, settings);
  }
  for (const FixedField& fixed : family.fixed_fields) {
    const Json* found = fields.find(fixed.field);
    check<ConfigError>(found == nullptr || found->is_null() || *found == fixed.value,
                       "{}: {} is {}, only {} is supported: {}", fields.source(), fixed.field,
                       found == nullptr ? "" : found->dump(), fixed.value.dump(), fixed.reason);
  }
  for (const FieldGroup& group : family.groups) {
    group.read(fields, settings);
  }
  read_quantization(fields);
  fields.check_unread_types();
  const std::vector<std::string> unread = fields.unread();
  check<ConfigError>(unread.empty(),
                     "{}: unknown {} {} for model_type {}: if it changes what the model computes, "
                     "this program cannot follow it; remove it if it does not",
                     fields.source(), unread.size() == 1 ? "field" : "fields",
                     fmt::join(unread, ", "), family.model_type);
  return settings;
}

Config with_settings(const Config& config, const SettingValues& settings,
                     const std::string& source) {
  Config result = config;
  std::vector<std::string> mistakes;
  for (const auto& [name, raw] : settings) {
    const std::string problem = setting_of(name).read(raw, result);
    if (!problem.empty()) {
      mistakes.push_back(fmt::format("{}: {} {}", source, name, problem));
    }
  }
  check<ConfigError>(mistakes.empty(), "{}", fmt::join(mistakes, "\n"));
  return result;
}

Json write_hf_fields(const ModelFamily& family, const Config& given) {
  const Config config = spelled_out(given);
  Json fields = {{"model_type", family.model_type},
                 {"architectures", {family.architecture}},
                 {"use_cache", true}};
  for (const FieldRule& rule : family.fields) {
    Json value = field_value(rule, config);
    if (!value.is_null() || !rule.standard.is_null()) {
      fields[rule.field] = std::move(value);
    }
  }
  for (const FixedField& fixed : family.fixed_fields) {
    fields[fixed.field] = fixed.value;
  }
  for (const FieldGroup& group : family.groups) {
    group.write(config, fields);
  }
  return fields;
}

bool decides_the_model(const std::string& setting) {
  if (setting == "model.from" || setting == "model.init_std" || setting == "model.max_position") {
    return false;
  }
  if (setting == "mtp.loss_coeff" || setting == "mamba.chunk_size" ||
      setting == "delta_net.chunk_size" || setting.starts_with("mamba.init_")) {
    return false;
  }
  const auto is_in = [&](const char* section) { return setting.starts_with(section); };
  return is_in("model.") || is_in("attention.") || is_in("mla.") || is_in("rope.") ||
         is_in("mamba.") || is_in("delta_net.") || is_in("mtp.") || is_in("multipliers.") ||
         is_among(kMoeSettings, setting);
}

std::vector<std::string> not_expressed(const ModelFamily& family, const Config& given) {
  const Config config = spelled_out(given);
  HfConfig fields(write_hf_fields(family, config), family.model_type);
  std::vector<std::string> differences;
  Config expressed;
  try {
    expressed =
        spelled_out(with_settings(Config{}, read_hf_settings(family, fields), family.model_type));
  } catch (const ConfigError& error) {
    return {error.what()};
  }
  const std::set<std::string> idle = names_without_meaning(config);
  for (const Setting& setting : settings()) {
    if (!decides_the_model(setting.name) || is_among(kLayerLists, setting.name) ||
        idle.contains(setting.name)) {
      continue;
    }
    const std::string wanted = setting.print(config);
    const std::string got = setting.print(expressed);
    if (wanted != got) {
      differences.push_back(
          fmt::format("{} is {} in this family, {} here", setting.name, got, wanted));
    }
  }
  if (moe_layers_of(config) != moe_layers_of(expressed)) {
    differences.push_back("other layers are MoE layers");
  }
  if (windows_of(config) != windows_of(expressed)) {
    differences.push_back("other layers have an attention window");
  }
  return differences;
}

}  // namespace switchyard
