#include "config/settings.h"

#include <tuple>
#include <utility>

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

const Setting* find_setting(std::string_view name) {
  for (const Setting& setting : settings()) {
    if (setting.name == name) {
      return &setting;
    }
  }
  return nullptr;
}

}  // namespace switchyard
