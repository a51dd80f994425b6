#include "config/manual.h"

#include <algorithm>
#include <vector>

#include <fmt/format.h>

#include "base/error.h"
#include "config/settings.h"

namespace switchyard {
namespace {

constexpr size_t kWidestValue =
    40;  // characters before the comments; longer values push theirs out

std::string line_of(const Setting& setting, const Config& config, const Origins& origins) {
  const bool is_open = setting.need != Need::kOptional && !origins.is_set(setting.name);
  return is_open ? fmt::format("  # {}: not given", setting.key)
                 : fmt::format("  {}: {}", setting.key, setting.print(config));
}

std::string default_text(const Setting& setting) {
  switch (setting.need) {
    case Need::kRequired:
      return "must be given";
    case Need::kRequiredToTrain:
      return "must be given to train";
    case Need::kOptional:
      break;
  }
  return "default " + setting.print(Config{});
}

std::string name_meant(const std::string& name) {
  const size_t dot = name.find('.');
  return dot == std::string::npos ? meant_section_or_setting(name)
                                  : meant_setting(name.substr(0, dot), name.substr(dot + 1));
}

std::string markdown_table(const std::string& section) {
  std::string table = "| key | value | default | meaning |\n| --- | --- | --- | --- |\n";
  for (const Setting& setting : settings()) {
    if (setting.section == section) {
      const std::string fallback = setting.need == Need::kOptional
                                       ? "`" + setting.print(Config{}) + "`"
                                       : default_text(setting);
      table += fmt::format("| `{}` | {} | {} | {} |\n", setting.key, setting.type, fallback,
                           setting.help);
    }
  }
  return table;
}

}  // namespace

std::string resolved_yaml(const Config& config, const Origins& origins) {
  size_t width = 0;
  for (const Setting& setting : settings()) {
    const size_t length = line_of(setting, config, origins).size();
    width = std::max(width, length <= kWidestValue ? length : 0);
  }
  std::string yaml;
  for (const SectionInfo& section : section_infos()) {
    yaml += fmt::format("{}:  # {}\n", section.key, section.help);
    for (const Setting& setting : settings()) {
      if (setting.section == section.key) {
        yaml += fmt::format("{:<{}}  # [{}] {}\n", line_of(setting, config, origins), width,
                            on_one_line(origins.of(setting.name)), setting.help);
      }
    }
  }
  return yaml;
}

std::string manual_text(const std::string& only) {
  if (!only.empty() && !is_section(only) && find_setting(only) == nullptr) {
    const std::string meant = name_meant(only);
    throw ConfigError(fmt::format(
        "there is no section or setting {}{}", only,
        meant.empty() ? "; config keys lists all" : fmt::format("; did you mean {}?", meant)));
  }
  std::string text;
  for (const SectionInfo& section : section_infos()) {
    if (only.empty() || only == section.key) {
      text += fmt::format("{}: {}\n", section.key, section.help);
    }
    for (const Setting& setting : settings()) {
      const bool is_asked_for = only.empty() || only == section.key || only == setting.name;
      if (setting.section == section.key && is_asked_for) {
        text += fmt::format("  {} ({}; {})\n      {}\n", setting.name, setting.type,
                            default_text(setting), setting.help);
      }
    }
  }
  return text;
}

std::string manual_markdown() {
  std::string page =
      "# Settings\n\n"
      "Made by `switchyard config keys --markdown`; edit the tables in src/config/sections.h and "
      "model_sections.h, not "
      "this page.\n\n"
      "A configuration is a YAML file with the sections below:\n\n"
      "```yaml\n"
      "extends: base.yaml  # optional: read that file first, relative to this one\n"
      "moe:\n"
      "  num_experts: 8\n"
      "  top_k: 2\n"
      "```\n\n"
      "Words after the file change single settings: `switchyard train run.yaml moe.top_k=4 "
      "'data.train=[a, b]'`.\n"
      "Unknown keys, wrong types, values out of range and sizes that do not fit together are "
      "refused, all at once, each with\nits line. `switchyard config show run.yaml` prints every "
      "value with the place it comes from.\n";
  for (const SectionInfo& section : section_infos()) {
    page +=
        fmt::format("\n## {}\n\n{}\n\n{}", section.key, section.help, markdown_table(section.key));
  }
  return page;
}

}  // namespace switchyard
