#pragma once

#include <functional>
#include <string>
#include <vector>

#include "config/config.h"
#include "config/values.h"

namespace switchyard {

// One setting without its C++ type: what the tables of all sections hold, ready to loop over.
struct Setting {
  std::string section;
  std::string key;
  std::string name;  // section.key
  std::string type;  // what is allowed, in words
  std::string help;
  Need need;

  // Stores the value and returns "", or returns what is wrong with it (see read_value).
  std::function<std::string(const RawValue&, Config&)> read;
  // The value as YAML.
  std::function<std::string(const Config&)> print;

  bool has_default_value(const Config& config) const { return print(config) == print(Config{}); }
};

// All settings, in the order of the sections and their tables.
const std::vector<Setting>& settings();

struct SectionInfo {
  std::string key;
  std::string help;
};
const std::vector<SectionInfo>& section_infos();

bool is_section(std::string_view key);

// The setting called `name` (section.key), or nullptr.
const Setting* find_setting(std::string_view name);

// The name of the setting that `key` probably meant, which does not exist in `section` ("" for a
// key outside any section); "" when nothing is near. Knows Megatron's and Hugging Face's names too.
std::string meant_setting(const std::string& section, const std::string& key);

// The same for a key where a section is expected: a section, or a setting.
std::string meant_section_or_setting(const std::string& key);

}  // namespace switchyard
