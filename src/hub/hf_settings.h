#pragma once

#include <nlohmann/json.hpp>

#include "config/config.h"
#include "hub/family.h"

namespace switchyard {

// The settings that a config.json means. Throws ConfigError, naming file and field, for a field
// that is unknown, of the wrong type, or of a value that the family's rules do not cover.
SettingValues read_hf_settings(const ModelFamily& family, HfConfig& fields);

// `config` with these settings in place of its own. Throws ConfigError that starts with `source`
// when a value is not what its setting allows.
Config with_settings(const Config& config, const SettingValues& settings,
                     const std::string& source);

// The fields of config.json for a model of these settings, in alphabetical order as transformers
// writes them. Settings that the family has no field for are not looked at.
nlohmann::json write_hf_fields(const ModelFamily& family, const Config& config);

// The settings, in words, in which `config` is none of the family's models: its config.json would
// mean another model. Empty when the family can express it.
std::vector<std::string> not_expressed(const ModelFamily& family, const Config& config);

// Whether a setting decides what a model computes, as opposed to how it is trained or laid out.
bool decides_the_model(const std::string& setting);

}  // namespace switchyard
