#pragma once

#include <filesystem>
#include <map>
#include <set>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "config/values.h"

namespace switchyard {

// Values of settings by name, as read from a file that is not ours: "model.hidden_size" -> 4096.
using SettingValues = std::map<std::string, RawValue>;

// The config.json of a Hugging Face model. It remembers which fields were asked for, so that one
// that nobody understands stops the import.
class HfConfig {
 public:
  // Throws FileError when the file is missing or not an object of JSON.
  static HfConfig from_file(const std::filesystem::path& path);
  HfConfig(nlohmann::json fields, std::string source);

  // The field, or the first of its old names that is there; null when the file has none of them.
  // Marks all of them as read. Throws ConfigError when two of them are there and differ.
  const nlohmann::json* find(const std::string& field,
                             const std::vector<std::string>& old_names = {});
  // A field of that type, or `standard` where it is missing or null. Throws ConfigError that names
  // file, field and value when it is of another type.
  template <class T>
  T get(const std::string& field, const T& standard);

  void mark_read(const std::string& field) { read_.insert(field); }
  // Fields that nothing asked for, without those that decide nothing about a model's values.
  std::vector<std::string> unread() const;

  // Throws ConfigError for a field that decides nothing, but of a type for which transformers would
  // refuse the file.
  void check_unread_types() const;

  const nlohmann::json& fields() const { return fields_; }
  const std::string& source() const { return source_; }  // "mixtral/config.json"

 private:
  nlohmann::json fields_;
  std::string source_;
  std::set<std::string> read_;
};

// A JSON value as a setting is written: a word, or a list of them. Throws ConfigError that starts
// with `where` for anything else.
RawValue raw_from_json(const nlohmann::json& value, const std::string& where);

}  // namespace switchyard
