#include "config/layer_overrides.h"

#include <algorithm>
#include <array>
#include <sstream>
#include <string_view>

#include <fmt/format.h>

#include "base/error.h"
#include "config/layer_set.h"
#include "config/settings.h"
#include "config/suggest.h"

namespace switchyard {
namespace {

constexpr std::array<std::string_view, 4> kFixed = {"layers", "first_dense_layers", "overrides",
                                                    "dispatcher"};

// A text taken apart; `mistake` says what is wrong with it.
struct Parsed {
  LayerOverride parts;
  std::string mistake;
};

std::vector<std::string> split(const std::string& text, char separator) {
  std::vector<std::string> parts;
  std::istringstream stream(text);
  for (std::string part; std::getline(stream, part, separator);) {
    part.erase(0, part.find_first_not_of(' '));
    part.erase(part.find_last_not_of(' ') + 1);
    if (!part.empty()) {
      parts.push_back(part);
    }
  }
  return parts;
}

std::vector<std::string> keys_that_may_differ() {
  std::vector<std::string> keys;
  for (const Setting& setting : settings()) {
    if (setting.section == "moe" &&
        std::find(kFixed.begin(), kFixed.end(), setting.key) == kFixed.end()) {
      keys.push_back(setting.key);
    }
  }
  return keys;
}

std::string wrong_key(const std::string& key) {
  const std::vector<std::string> keys = keys_that_may_differ();
  if (std::find(keys.begin(), keys.end(), key) != keys.end()) {
    return "";
  }
  if (std::find(kFixed.begin(), kFixed.end(), key) != kFixed.end()) {
    return fmt::format("moe.{} cannot differ between layers", key);
  }
  const std::string near = nearest_name(key, keys);
  return fmt::format("unknown key {}{}", key, near.empty() ? "" : "; did you mean " + near + "?");
}

// Reads `key=value` into `config`; returns what is wrong with it.
std::string read_setting(const std::string& word, Config& config, Parsed& parsed) {
  const size_t equals = word.find('=');
  if (equals == std::string::npos) {
    return fmt::format("expected key=value, got {}", word);
  }
  const std::string key = word.substr(0, equals);
  if (std::string mistake = wrong_key(key); !mistake.empty()) {
    return mistake;
  }
  const std::string name = "moe." + key;
  const std::string value = word.substr(equals + 1);
  const std::string mistake = find_setting(name)->read({{value}, false}, config);
  if (!mistake.empty()) {
    return name + " " + mistake;
  }
  if (name == "moe.num_experts" && config.moe.num_experts == 0) {
    return "moe.num_experts is 0: leave the layer out of moe.layers instead";
  }
  parsed.parts.names.push_back(name);
  parsed.parts.values.push_back(value);
  return "";
}

Parsed parse(const std::string& text, const Config& config) {
  Parsed parsed;
  parsed.parts.text = text;
  const auto wrong = [&](const std::string& mistake) {
    parsed.mistake = fmt::format("moe.overrides holds \"{}\": {}", text, mistake);
    return parsed;
  };
  const size_t colon = text.find(':');
  const std::vector<std::string> layers = split(text.substr(0, colon), ',');
  const std::vector<std::string> words =
      colon == std::string::npos ? std::vector<std::string>{} : split(text.substr(colon + 1), ' ');
  if (layers.empty() || words.empty()) {
    return wrong("expected layers, a colon and settings, as in `4-7: num_experts=16 top_k=2`");
  }
  parsed.mistake = wrong_layer_set("moe.overrides", layers, config.model.num_layers);
  if (!parsed.mistake.empty()) {
    return parsed;
  }
  parsed.parts.layers = layer_set("moe.overrides", layers, config.model.num_layers);
  Config changed = config;
  for (const std::string& word : words) {
    if (const std::string mistake = read_setting(word, changed, parsed); !mistake.empty()) {
      return wrong(mistake);
    }
  }
  return parsed;
}

Parsed parse_or_throw(const std::string& text, const Config& config) {
  Parsed parsed = parse(text, config);
  check<ConfigError>(parsed.mistake.empty(), "{}", parsed.mistake);
  return parsed;
}

}  // namespace

std::vector<std::string> wrong_overrides(const Config& config) {
  std::vector<std::string> lines;
  for (const std::string& text : config.moe.overrides) {
    if (const Parsed parsed = parse(text, config); !parsed.mistake.empty()) {
      lines.push_back(parsed.mistake);
    }
  }
  return lines;
}

MoeConfig moe_of_layer(const Config& config, int64_t layer) {
  Config changed = config;
  for (const std::string& text : config.moe.overrides) {
    const Parsed parsed = parse_or_throw(text, config);
    if (!parsed.parts.layers[static_cast<size_t>(layer)]) {
      continue;
    }
    for (size_t i = 0; i < parsed.parts.values.size(); ++i) {
      find_setting(parsed.parts.names[i])->read({{parsed.parts.values[i]}, false}, changed);
    }
  }
  return changed.moe;
}

std::vector<LayerOverride> layer_overrides(const Config& config) {
  std::vector<LayerOverride> all;
  for (const std::string& text : config.moe.overrides) {
    all.push_back(parse_or_throw(text, config).parts);
  }
  return all;
}

}  // namespace switchyard
