#pragma once

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>

namespace switchyard {

// An object of a JSON file, read with errors that name the file and the place in it. All members
// throw FileError where what is asked for is missing or of another kind. Refers to the JSON value.
class JsonObject {
 public:
  // `where` names the file, and the place in it.
  JsonObject(const nlohmann::json& value, std::string where);

  const std::string& where() const { return where_; }
  bool has(const char* key) const;  // and it is not null

  std::string text(const char* key) const;
  std::optional<std::string> optional_text(const char* key) const;
  int64_t integer(const char* key) const;
  bool flag(const char* key) const;
  bool flag(const char* key, bool otherwise) const;
  // The text, which is one of `words`, as its index.
  size_t word(const char* key, std::initializer_list<const char*> words) const;

  JsonObject object(const char* key) const;
  std::vector<JsonObject> objects(const char* key) const;  // an array of objects
  const nlohmann::json& array(const char* key) const;
  const nlohmann::json& value(const char* key) const;

  // A component's kind, from "type".
  std::string type() const { return text("type"); }
  const nlohmann::json& raw() const { return *value_; }

 private:
  const nlohmann::json* value_;
  std::string where_;
};

// The JSON of a file. Throws FileError, with the place, for text that is not JSON.
nlohmann::json read_json_file(const std::string& path);

// A text of JSON, or the throw of a FileError that names `what` and `where`.
std::string text_of(const nlohmann::json& value, const std::string& where, const char* what);

}  // namespace switchyard
