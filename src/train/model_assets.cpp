#include "train/model_assets.h"

#include <algorithm>
#include <map>

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/files.h"
#include "checkpoint/assets.h"
#include "data/tokenizers/tokenizer_files.h"

namespace switchyard {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

constexpr const char* kBytes = "bytes";
constexpr const char* kGenerationConfig = "generation_config.json";

std::vector<TokenizerFile> files_of(const Tokenizer& tokenizer) {
  return tokenizer.name() == kBytes ? std::vector<TokenizerFile>{}
                                    : files_of_tokenizer(tokenizer.name());
}

// Ids of special tokens stand in these, and are those of the tokenizer that the model came with.
bool speaks_of_tokenizer(const fs::path& file) {
  return belongs_to_tokenizer(file) || file.filename() == kGenerationConfig ||
         file.filename() == "config.json";
}

// The id of a token that tokenizer_config.json names, as a text or as an object with "content".
std::optional<int32_t> special_id(const Json& tokenizer_config, const char* key,
                                  const Tokenizer& tokenizer) {
  Json token = tokenizer_config.value(key, Json());
  if (token.is_object()) {
    token = token.value("content", Json());
  }
  if (!token.is_string()) {
    return std::nullopt;
  }
  const std::vector<int32_t> ids = tokenizer.encode(token.get<std::string>());
  return ids.size() == 1 ? std::optional(ids.front()) : std::nullopt;
}

std::string generation_config(const Tokenizer& tokenizer, const std::vector<TokenizerFile>& files) {
  Json config = {{"eos_token_id", tokenizer.end_of_document()}};
  for (const TokenizerFile& file : files) {
    if (file.name != "tokenizer_config.json") {
      continue;
    }
    const Json said = Json::parse(read_text(file.path), nullptr, /*allow_exceptions=*/false);
    for (const auto& [key, name] :
         {std::pair("bos_token", "bos_token_id"), std::pair("pad_token", "pad_token_id")}) {
      if (const auto id = said.is_object() ? special_id(said, key, tokenizer) : std::nullopt) {
        config[name] = *id;
      }
    }
  }
  return config.dump(2) + "\n";
}

}  // namespace

void write_assets(const fs::path& run, const Tokenizer& tokenizer,
                  const std::vector<fs::path>& model_assets,
                  std::optional<uint64_t> model_tokenizer) {
  const bool is_models_own = model_tokenizer == tokenizer.fingerprint();
  std::map<std::string, std::string> contents;  // all read before anything is removed
  for (const fs::path& file : model_assets) {
    if (is_models_own || !speaks_of_tokenizer(file)) {
      contents[file.filename()] = read_text(file);
    }
  }
  if (!is_models_own) {
    const std::vector<TokenizerFile> files = files_of(tokenizer);
    for (const TokenizerFile& file : files) {
      contents[file.name] = read_text(file.path);
    }
    contents[kGenerationConfig] = generation_config(tokenizer, files);
  }
  const fs::path folder = run / "assets";
  fs::remove_all(folder);  // of a start that saved nothing
  make_directories(folder);
  for (const auto& [name, content] : contents) {
    write_text(folder / name, content);
  }
}

std::optional<std::string> kept_tokenizer(const fs::path& run) {
  const std::vector<fs::path> files = assets_of(run);
  return std::any_of(files.begin(), files.end(), is_tokenizer)
             ? std::optional((run / "assets").string())
             : std::nullopt;
}

}  // namespace switchyard
