#include "data/tokenizers/json_object.h"

#include <utility>

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/mapped_file.h"

namespace switchyard {

using nlohmann::json;

JsonObject::JsonObject(const json& value, std::string where)
    : value_(&value), where_(std::move(where)) {
  check<FileError>(value.is_object(), "{} is not a JSON object", where_);
}

bool JsonObject::has(const char* key) const {
  const auto found = value_->find(key);
  return found != value_->end() && !found->is_null();
}

const json& JsonObject::value(const char* key) const {
  check<FileError>(has(key), "{}: \"{}\" is missing", where_, key);
  return *value_->find(key);
}

std::string JsonObject::text(const char* key) const {
  return text_of(value(key), where_, key);
}

std::optional<std::string> JsonObject::optional_text(const char* key) const {
  return has(key) ? std::optional(text(key)) : std::nullopt;
}

int64_t JsonObject::integer(const char* key) const {
  const json& number = value(key);
  check<FileError>(number.is_number_integer(), "{}: \"{}\" is not a whole number", where_, key);
  return number.get<int64_t>();
}

bool JsonObject::flag(const char* key) const {
  const json& flag = value(key);
  check<FileError>(flag.is_boolean(), "{}: \"{}\" is neither true nor false", where_, key);
  return flag.get<bool>();
}

bool JsonObject::flag(const char* key, bool otherwise) const {
  return has(key) ? flag(key) : otherwise;
}

size_t JsonObject::word(const char* key, std::initializer_list<const char*> words) const {
  const std::string given = text(key);
  std::string known;
  size_t index = 0;
  for (const char* word : words) {
    if (given == word) {
      return index;
    }
    known += fmt::format("{}{}", index++ == 0 ? "" : ", ", word);
  }
  throw FileError(fmt::format("{}: \"{}\" is \"{}\"; known are: {}", where_, key, given, known));
}

JsonObject JsonObject::object(const char* key) const {
  return {value(key), fmt::format("{}: {}", where_, key)};
}

std::vector<JsonObject> JsonObject::objects(const char* key) const {
  std::vector<JsonObject> all;
  for (const json& element : array(key)) {
    all.emplace_back(element, fmt::format("{}: {}[{}]", where_, key, all.size()));
  }
  return all;
}

const json& JsonObject::array(const char* key) const {
  const json& list = value(key);
  check<FileError>(list.is_array(), "{}: \"{}\" is not a list", where_, key);
  return list;
}

json read_json_file(const std::string& path) {
  const MappedFile file(path);
  const auto* begin = reinterpret_cast<const char*>(file.bytes().data());
  try {
    return json::parse(begin, begin + file.bytes().size());
  } catch (const json::parse_error& error) {
    throw FileError(fmt::format("{} is not JSON: unexpected text at byte {} of {}", path,
                                error.byte, file.bytes().size()));
  }
}

std::string text_of(const json& value, const std::string& where, const char* what) {
  check<FileError>(value.is_string(), "{}: \"{}\" is not a text", where, what);
  return value.get<std::string>();
}

}  // namespace switchyard
