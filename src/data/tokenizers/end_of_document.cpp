#include "data/tokenizers/end_of_document.h"

#include <filesystem>
#include <optional>

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "data/tokenizers/json_object.h"

namespace switchyard {
namespace {

namespace fs = std::filesystem;

// A token in tokenizer_config.json is a text, or an object with its text as "content".
std::optional<std::string> read_token(const JsonObject& json, const char* key) {
  if (!json.has(key)) {
    return std::nullopt;
  }
  return json.value(key).is_object() ? json.object(key).text("content") : json.text(key);
}

std::optional<int64_t> read_token_id(const JsonObject& json, const char* key) {
  if (!json.has(key)) {
    return std::nullopt;
  }
  const nlohmann::json& value = json.value(key);
  const bool is_list = value.is_array() && !value.empty();
  const nlohmann::json& id = is_list ? value[0] : value;
  check<FileError>(id.is_number_integer(), "{}: \"{}\" is not a token id", json.where(), key);
  return id.get<int64_t>();
}

}  // namespace

int32_t find_end_of_document(const std::string& file, int64_t vocab_size,
                             const std::function<int32_t(std::string_view)>& find,
                             std::optional<int32_t> otherwise) {
  const fs::path folder = fs::path(file).parent_path();
  const std::string tokenizer_config = folder / "tokenizer_config.json";
  if (fs::exists(tokenizer_config)) {
    const nlohmann::json json = read_json_file(tokenizer_config);
    if (const auto token = read_token(JsonObject(json, tokenizer_config), "eos_token")) {
      const int32_t id = find(*token);
      check<FileError>(id >= 0, "{}: eos_token is \"{}\", which is not a token of {}",
                       tokenizer_config, *token, file);
      return id;
    }
  }
  for (const char* name : {"generation_config.json", "config.json"}) {
    const std::string path = folder / name;
    if (!fs::exists(path)) {
      continue;
    }
    const nlohmann::json json = read_json_file(path);
    if (const auto id = read_token_id(JsonObject(json, path), "eos_token_id")) {
      check<FileError>(*id >= 0 && *id < vocab_size,
                       "{}: eos_token_id is {}, outside the vocabulary of {} (0 to {})", path, *id,
                       file, vocab_size - 1);
      return static_cast<int32_t>(*id);
    }
  }
  if (otherwise) {
    return *otherwise;
  }
  throw FileError(fmt::format(
      "{}: nothing says which token ends a document: tokenizer_config.json beside it has no "
      "eos_token, generation_config.json and config.json no eos_token_id; write a "
      "tokenizer_config.json with {{\"eos_token\": \"...\"}}",
      file));
}

}  // namespace switchyard
