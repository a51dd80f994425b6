#include "config/load.h"

#include <cctype>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/error.h"
#include "config/reader.h"
#include "config/required.h"
#include "config/warnings.h"

namespace switchyard {
namespace {

void throw_lines(const std::vector<std::string>& lines) {
  check<ConfigError>(lines.empty(), "{}", fmt::join(lines, "\n"));
}

Reader read(const std::string& path, const std::vector<std::string>& overrides,
            const GivenSettings& given) {
  Reader reader;
  reader.read_given(given);
  reader.read_file(path);
  for (const std::string& text : overrides) {
    reader.read_override(text);
  }
  return reader;
}

void check_binding(const LoadedConfig& loaded, const GivenSettings& given) {
  Reader reader;
  reader.read_given(given);
  std::vector<std::string> lines;
  for (const std::string& name : given.binding) {
    const Setting& setting = *find_setting(name);
    const std::string wanted = setting.print(loaded.config);
    const std::string bound = setting.print(reader.config());
    if (wanted != bound) {
      lines.push_back(
          fmt::format("{} is {} [{}], in the model to start from it is {} [{}]: remove "
                      "the setting, or start from another model",
                      name, wanted, loaded.origins.of(name), bound, given.origin));
    }
  }
  throw_lines(lines);
}

// Nobody can leave out what the model to start from says: no warning about that.
LoadedConfig result_of(const Reader& reader, const GivenSettings& given = {}) {
  throw_lines(reader.mistakes());
  return {reader.config(), reader.origins(),
          warnings_about(reader.config(), reader.origins().without(given.origin))};
}

// True when `name` stands in `text` and is not part of a longer name.
bool names(const std::string& text, const std::string& name) {
  const auto is_part_of_name = [&](size_t position) {
    const int letter = position < text.size() ? text[position] & 0xff : ' ';
    return std::isalnum(letter) != 0 || letter == '_';
  };
  for (size_t at = text.find(name); at != std::string::npos; at = text.find(name, at + 1)) {
    if ((at == 0 || !is_part_of_name(at - 1)) && !is_part_of_name(at + name.size())) {
      return true;
    }
  }
  return false;
}

// The line, followed by where the settings it names were set.
std::string with_origins(const std::string& line, const Origins& origins) {
  std::vector<std::string> set;
  for (const Setting& setting : settings()) {
    if (origins.is_set(setting.name) && names(line, setting.name)) {
      set.push_back(fmt::format("{}: {}", setting.name, origins.of(setting.name)));
    }
  }
  return set.empty() ? line : fmt::format("{} [{}]", line, fmt::join(set, ", "));
}

}  // namespace

LoadedConfig load_config(const std::string& path, const std::vector<std::string>& overrides,
                         ConfigUse use, const GivenSettings& given) {
  Reader reader = read(path, overrides, given);
  reader.require_settings(use);
  LoadedConfig loaded = result_of(reader, given);
  check_binding(loaded, given);
  check_config(loaded, use);
  return loaded;
}

LoadedConfig load_config_text(const std::string& text, const std::string& label, ConfigUse use) {
  Reader reader;
  reader.read_document(text, label);
  reader.require_settings(use);
  LoadedConfig loaded = result_of(reader);
  check_config(loaded, use);
  return loaded;
}

LoadedConfig read_config(const std::string& path, const std::vector<std::string>& overrides,
                         const GivenSettings& given) {
  return result_of(read(path, overrides, given), given);
}

void check_config(const LoadedConfig& loaded, ConfigUse use) {
  std::vector<std::string> lines;
  for (const Setting* setting : missing_settings(loaded.origins, use)) {
    lines.push_back(missing_text(*setting));
  }
  throw_lines(lines);
  for (const std::string& line : broken_rules(loaded.config, use)) {
    lines.push_back(with_origins(line, loaded.origins));
  }
  throw_lines(lines);
}

}  // namespace switchyard
