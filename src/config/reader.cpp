#include "config/reader.h"

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <system_error>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <yaml-cpp/depthguard.h>
#include <yaml-cpp/yaml.h>

#include "base/error.h"
#include "config/required.h"

namespace switchyard {
namespace {

namespace fs = std::filesystem;

std::string place(const std::string& label, const YAML::Mark& mark) {
  return mark.is_null() ? label : fmt::format("{}:{}", label, mark.line + 1);
}

bool is_same_file(const std::string& a, const std::string& b) {
  std::error_code cannot_tell;  // reading the file will say why
  return fs::equivalent(a, b, cannot_tell);
}

std::string read_text(const std::string& path) {
  std::error_code cannot_tell;  // opening the file will say why
  check<FileError>(!fs::is_directory(path, cannot_tell), "{}: is a folder, expected a YAML file",
                   path);
  std::ifstream file(path, std::ios::binary);
  check<FileError>(file.good(), "{}: cannot be read: {}", path, std::strerror(errno));
  std::string text{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  check<FileError>(!file.bad(), "{}: cannot be read: {}", path, std::strerror(errno));
  return text;
}

// A word or a list of words; nothing for what no setting can be.
std::optional<RawValue> raw_value(const YAML::Node& node) {
  if (node.IsScalar()) {
    return RawValue{{node.Scalar()}, false};
  }
  if (!node.IsSequence()) {
    return std::nullopt;
  }
  RawValue raw{{}, true};
  for (const YAML::Node& item : node) {
    if (!item.IsScalar()) {
      return std::nullopt;
    }
    raw.items.push_back(item.Scalar());
  }
  return raw;
}

std::string advice(const std::string& meant) {
  return meant.empty() ? "; `switchyard config keys` lists all settings"
                       : fmt::format("; did you mean {}?", meant);
}

}  // namespace

RawValue raw_value(const std::string& text) {
  const auto stands_between = [&text](char begin, char end) {
    return text.size() >= 2 && text.front() == begin && text.back() == end;
  };
  if (stands_between('[', ']') || stands_between('"', '"')) {
    try {
      if (const auto raw = raw_value(YAML::Load(text)); raw.has_value()) {
        return *raw;
      }
    } catch (const YAML::Exception&) {
      // Neither after all: the setting says what it expects.
    }
  }
  return {{text}, false};
}

void Reader::read_file(const std::string& path) {
  read_document(read_text(path), path);
}

void Reader::read_document(const std::string& text, const std::string& label) {
  chain_.push_back(label);
  std::vector<YAML::Node> documents;
  try {
    documents = YAML::LoadAll(text);
  } catch (const YAML::DeepRecursion& error) {  // its own message is "bad file"
    mistake("{}: not a configuration: lists or sections are nested too deeply",
            place(label, error.mark));
    unreadable_ = true;
  } catch (const YAML::Exception& error) {
    mistake("{}: not valid YAML: {}", place(label, error.mark), error.msg);
    unreadable_ = true;
  }
  if (documents.size() > 1) {
    mistake("{}: holds {} YAML documents, expected one", label, documents.size());
    unreadable_ = true;
  } else if (documents.empty() || documents[0].IsNull()) {
    if (!unreadable_) {
      mistake("{}: is empty, expected sections such as model: and train:", label);
    }
    unreadable_ = true;
  } else if (!documents[0].IsMap()) {
    mistake("{}: must hold sections such as model: and train:, got a {}",
            place(label, documents[0].Mark()), documents[0].IsSequence() ? "list" : "single value");
    unreadable_ = true;
  } else {
    read_sections(documents[0], label);
  }
  chain_.pop_back();
}

std::optional<std::string> Reader::read_key(const YAML::Node& node, const std::string& prefix,
                                            const std::string& label,
                                            std::map<std::string, int>& lines) {
  const std::string where = place(label, node.Mark());
  if (!node.IsScalar()) {
    mistake("{}: a key must be a single word", where);
    return std::nullopt;
  }
  const std::string& key = node.Scalar();
  const int line = node.Mark().line + 1;
  if (const auto [first, is_new] = lines.emplace(key, line); !is_new) {
    mistake("{}: {}{} is given twice, first in line {}", where, prefix, key, first->second);
  }
  return key;
}

void Reader::read_sections(const YAML::Node& document, const std::string& label) {
  // The base first, wherever `extends` stands: this file's settings win.
  for (const auto& entry : document) {
    if (entry.first.IsScalar() && entry.first.Scalar() == "extends") {
      read_base(entry.second, label, place(label, entry.first.Mark()));
    }
  }
  std::map<std::string, int> lines;
  for (const auto& entry : document) {
    const std::optional<std::string> key = read_key(entry.first, "", label, lines);
    if (!key.has_value() || *key == "extends") {
      continue;
    }
    const std::string where = place(label, entry.first.Mark());
    if (is_section(*key)) {
      read_section(*key, entry.second, label, where);
    } else {
      unknown_section(*key, where);
    }
  }
}

void Reader::read_base(const YAML::Node& node, const std::string& label, const std::string& where) {
  if (!node.IsScalar() || node.Scalar().empty()) {
    mistake("{}: extends must be the path of a YAML file", where);
    return;
  }
  const fs::path path = (fs::path(label).parent_path() / node.Scalar()).lexically_normal();
  for (const std::string& reading : chain_) {
    if (is_same_file(reading, path.string())) {
      mistake("{}: extends makes a circle: {} -> {}", where, fmt::join(chain_, " -> "),
              path.string());
      return;
    }
  }
  try {
    read_file(path.string());
  } catch (const FileError& error) {
    mistake("{}: extends {}", where, error.what());
    unreadable_ = true;
  }
}

void Reader::read_section(const std::string& section, const YAML::Node& node,
                          const std::string& label, const std::string& where) {
  if (node.IsNull()) {
    return;  // a section whose keys are all commented out
  }
  if (!node.IsMap()) {
    mistake("{}: {} must be a section of keys and values, got a {}", where, section,
            node.IsSequence() ? "list" : "single value");
    unreadable_ = true;
    return;
  }
  std::map<std::string, int> lines;
  for (const auto& entry : node) {
    const std::optional<std::string> key = read_key(entry.first, section + ".", label, lines);
    if (!key.has_value()) {
      continue;
    }
    const std::string key_place = place(label, entry.first.Mark());
    const Setting* setting = find_setting(section + "." + *key);
    if (setting == nullptr) {
      unknown_key(section + "." + *key, meant_setting(section, *key), key_place);
    } else {
      read_setting(*setting, entry.second, key_place);
    }
  }
}

void Reader::read_setting(const Setting& setting, const YAML::Node& node,
                          const std::string& where) {
  const std::optional<RawValue> raw = raw_value(node);
  if (raw.has_value()) {
    store(setting, *raw, where);
    return;
  }
  origins_.set(setting.name, where);
  if (node.IsNull()) {
    mistake("{}: {} has no value", where, setting.name);
  } else {
    mistake("{}: {} must be a single value or a list of them, got a nested one", where,
            setting.name);
  }
}

void Reader::unknown_section(const std::string& key, const std::string& where) {
  if (const Setting* setting = find_setting(key); setting != nullptr) {
    suggested_.insert(setting->name);
    mistake("{}: unknown section {}; write {} inside the section {}", where, key, setting->key,
            setting->section);
    return;
  }
  const std::string meant = meant_section_or_setting(key);
  unreadable_ = unreadable_ || is_section(meant);  // what stands inside is not looked at
  suggested_.insert(meant);
  mistake("{}: unknown section {}{}", where, key, advice(meant));
}

void Reader::unknown_key(const std::string& name, const std::string& meant,
                         const std::string& where) {
  suggested_.insert(meant);
  mistake("{}: unknown key {}{}", where, name, advice(meant));
}

void Reader::store(const Setting& setting, const RawValue& raw, const std::string& origin) {
  origins_.set(setting.name, origin);
  std::string problem = setting.read(raw, config_);
  const bool is_empty = raw.items.empty() || (!raw.is_list && raw.items.front().empty());
  if (problem.empty() && is_empty && setting.need != Need::kOptional) {
    problem = "must not be empty";
  }
  if (!problem.empty()) {
    mistake("{}: {} {}", origin, setting.name, problem);
  }
}

void Reader::read_override(const std::string& text) {
  const std::string where = "command line";
  const size_t equals = text.find('=');
  const std::string name = text.substr(0, equals);
  const Setting* setting = find_setting(name);
  if (setting == nullptr && (equals == std::string::npos || name.empty())) {
    mistake("{}: {} is not of the form section.key=value", where, text);
  } else if (setting == nullptr) {
    const size_t dot = name.find('.');
    const bool has_section = dot != std::string::npos;
    unknown_key(name,
                has_section ? meant_setting(name.substr(0, dot), name.substr(dot + 1))
                            : meant_setting("", name),
                where);
  } else if (equals == std::string::npos) {
    mistake("{}: {} has no value; write {}=VALUE", where, name, name);
  } else if (!overridden_.insert(name).second) {
    mistake("{}: {} is given twice", where, name);
  } else {
    store(*setting, raw_value(text.substr(equals + 1)), where);
  }
}

void Reader::read_given(const GivenSettings& given) {
  for (const auto& [name, raw] : given.values) {
    const Setting* setting = find_setting(name);
    if (setting == nullptr) {
      unknown_key(name, "", given.origin);
    } else {
      store(*setting, raw, given.origin);
    }
  }
}

void Reader::require_settings(ConfigUse use) {
  if (unreadable_) {
    return;
  }
  for (const Setting* setting : missing_settings(origins_, use)) {
    if (suggested_.count(setting->name) == 0) {
      mistake("{}", missing_text(*setting));
    }
  }
}

}  // namespace switchyard
