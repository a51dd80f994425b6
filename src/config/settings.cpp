#include "config/settings.h"

#include <tuple>
#include <utility>

#include "config/suggest.h"

namespace switchyard {
namespace {

template <class Section, class Entry>
Setting erase_type(const SectionEntry<Section>& section, const Entry& entry) {
  const std::string section_key(section.key);
  const std::string key(entry.key);
  const auto read = [part = section.member, entry](const RawValue& raw, Config& config) {
    return read_value(raw, entry.limits, config.*part.*entry.member);
  };
  const auto print = [part = section.member, entry](const Config& config) {
    const auto& value = config.*part.*entry.member;
    if constexpr (std::is_enum_v<std::remove_cvref_t<decltype(value)>>) {
      return std::string(word_of(entry.limits, value));
    } else {
      return print_value(value);
    }
  };
  const Config defaults;
  return {section_key,
          key,
          section_key + "." + key,
          type_text(entry.limits, defaults.*section.member.*entry.member),
          std::string(entry.help),
          entry.need,
          read,
          print};
}

template <class Section>
void append_section(const SectionEntry<Section>& section, std::vector<Setting>& list) {
  check_table<Section>();
  std::apply([&](const auto&... entry) { (list.push_back(erase_type(section, entry)), ...); },
             Section::fields());
}

std::vector<std::string> section_keys() {
  std::vector<std::string> keys;
  for (const SectionInfo& section : section_infos()) {
    keys.push_back(section.key);
  }
  return keys;
}

// Keys of one section; of all sections when it is "".
std::vector<std::string> setting_keys(const std::string& section) {
  std::vector<std::string> keys;
  for (const Setting& setting : settings()) {
    if (section.empty() || setting.section == section) {
      keys.push_back(setting.key);
    }
  }
  return keys;
}

std::string name_of_key(const std::string& key) {
  for (const Setting& setting : settings()) {
    if (setting.key == key) {
      return setting.name;
    }
  }
  return "";
}

// The setting that others call `key`, or that has this key in any of our sections.
std::string known_elsewhere(const std::string& key) {
  const std::string foreign = name_of_foreign_key(key);
  return foreign.empty() ? name_of_key(key) : foreign;
}

}  // namespace

const std::vector<Setting>& settings() {
  static_assert(std::tuple_size_v<decltype(Config::sections())> == member_count<Config>(),
                "a section is missing from Config::sections()");
  static_assert(entries_differ(Config::sections()), "two sections share a key or a member");
  static const std::vector<Setting> all = [] {
    std::vector<Setting> list;
    std::apply([&](const auto&... section) { (append_section(section, list), ...); },
               Config::sections());
    return list;
  }();
  return all;
}

const std::vector<SectionInfo>& section_infos() {
  static const std::vector<SectionInfo> all = [] {
    std::vector<SectionInfo> list;
    std::apply(
        [&](const auto&... section) {
          (list.push_back({std::string(section.key), std::string(section.help)}), ...);
        },
        Config::sections());
    return list;
  }();
  return all;
}

bool is_section(std::string_view key) {
  for (const SectionInfo& section : section_infos()) {
    if (section.key == key) {
      return true;
    }
  }
  return false;
}

const Setting* find_setting(std::string_view name) {
  for (const Setting& setting : settings()) {
    if (setting.name == name) {
      return &setting;
    }
  }
  return nullptr;
}

std::string meant_setting(const std::string& section, const std::string& key) {
  if (std::string known = known_elsewhere(key); !known.empty()) {
    return known;
  }
  if (is_section(section)) {
    const std::string near = nearest_name(key, setting_keys(section));
    if (!near.empty()) {
      return section + "." + near;
    }
  }
  return name_of_key(nearest_name(key, setting_keys("")));
}

std::string meant_section_or_setting(const std::string& key) {
  if (std::string known = known_elsewhere(key); !known.empty()) {
    return known;
  }
  const std::string section = nearest_name(key, section_keys());
  return section.empty() ? meant_setting("", key) : section;
}

}  // namespace switchyard
