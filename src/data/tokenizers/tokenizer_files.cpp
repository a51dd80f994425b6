#include "data/tokenizers/tokenizer_files.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "base/files.h"
#include "base/mapped_file.h"
#include "data/byte_tokenizer.h"
#include "data/tokenizers/sentencepiece_tokenizer.h"
#include "data/tokenizers/tiktoken_file.h"
#include "data/tokenizers/tokenizer_json.h"

namespace switchyard {
namespace {

namespace fs = std::filesystem;

// In the order in which they win; a point at the start: any file with this ending.
constexpr std::array<std::string_view, 5> kTokenizers = {"tokenizer.json", "tekken.json",
                                                         "tokenizer.model", ".model", ".tiktoken"};

// What transformers writes beside one. Old files hold the vocabulary once more.
constexpr std::array<std::string_view, 7> kCompanions = {"tokenizer_config.json",
                                                         "special_tokens_map.json",
                                                         "added_tokens.json",
                                                         "chat_template.jinja",
                                                         "chat_template.json",
                                                         "vocab.json",
                                                         "merges.txt"};

// The pattern and special tokens of a file of tiktoken's ranks: FILE.json beside FILE.
bool is_about_ranks(const fs::path& file) {
  const fs::path ranks = file.stem();
  return file.extension() == ".json" &&
         (ranks.extension() == ".tiktoken" || ranks.extension() == ".model");
}

bool matches(const fs::path& file, std::string_view name) {
  return file.filename() == name || (name[0] == '.' && file.extension() == name);
}

std::vector<fs::path> files_in(const fs::path& folder) {
  std::vector<fs::path> files;
  for (const auto& entry : fs::directory_iterator(folder)) {
    if (entry.is_regular_file()) {
      files.push_back(entry.path());
    }
  }
  std::sort(files.begin(), files.end());
  return files;
}

// The file in a folder that wins; of one kind the first by name.
std::string find_in_folder(const fs::path& folder) {
  const std::vector<fs::path> files = files_in(folder);
  for (const std::string_view name : kTokenizers) {
    for (const fs::path& file : files) {
      if (matches(file, name)) {
        return file;
      }
    }
  }
  throw FileError(fmt::format(
      "{} holds no tokenizer: none of tokenizer.json, tekken.json, *.model, *.tiktoken is there",
      folder.string()));
}

bool is_tekken(const fs::path& path) {
  return path.filename().string().starts_with("tekken");
}

// What an export has written for the tokenizer `bytes`: read as that, so that its data stay its
// own.
bool is_byte_tokenizer(const fs::path& file) {
  const std::string ours = byte_tokenizer_files().at("tokenizer.json");
  return fs::file_size(file) == ours.size() && read_text(file) == ours;
}

}  // namespace

std::unique_ptr<Tokenizer> read_tokenizer(const std::string& path) {
  const std::string file = fs::is_directory(path) ? find_in_folder(path) : path;
  if (fs::path(file).extension() == ".json") {
    if (is_byte_tokenizer(file)) {
      return std::make_unique<ByteTokenizer>();
    }
    return is_tekken(file) ? read_tekken(file, path) : read_tokenizer_json(file, path);
  }
  // Both SentencePiece models and ranks of tiktoken are called tokenizer.model. The first field of
  // a SentencePiece model is a piece, and begins with a new line.
  const MappedFile content(file);
  check<FileError>(!content.bytes().empty(), "{} is empty", file);
  if (content.bytes()[0] == std::byte{'\n'}) {
    return read_sentencepiece(file, path);
  }
  check<FileError>(
      fs::path(file).extension() == ".tiktoken" || fs::path(file).extension() == ".model",
      "{} is not a tokenizer of a known kind: tokenizer.json, tekken.json, a "
      "SentencePiece model, a .tiktoken file, or a folder that holds one of them",
      file);
  return read_tiktoken(file, path);
}

bool is_tokenizer(const fs::path& file) {
  return std::any_of(kTokenizers.begin(), kTokenizers.end(),
                     [&](std::string_view name) { return matches(file, name); });
}

bool belongs_to_tokenizer(const fs::path& file) {
  return is_tokenizer(file) || is_about_ranks(file) ||
         std::find(kCompanions.begin(), kCompanions.end(), file.filename().string()) !=
             kCompanions.end();
}

std::vector<TokenizerFile> files_of_tokenizer(const std::string& path) {
  std::vector<TokenizerFile> files;
  if (fs::is_directory(path)) {
    find_in_folder(path);  // throws when there is none
    for (const fs::path& file : files_in(path)) {
      if (belongs_to_tokenizer(file)) {
        files.push_back({file, file.filename().string()});
      }
    }
    return files;
  }
  // Another tokenizer may lie beside it, so that only what is about any comes along.
  const fs::path file = path;
  const bool is_json = file.extension() == ".json";
  files.push_back({file, is_tekken(file) && is_json ? "tekken.json"
                         : is_json                  ? "tokenizer.json"
                                                    : file.filename().string()});
  for (const std::string_view name : {kCompanions[0], kCompanions[1], kCompanions[2]}) {
    const fs::path companion = file.parent_path() / name;
    if (fs::is_regular_file(companion)) {
      files.push_back({companion, std::string(name)});
    }
  }
  if (const fs::path companion = path + ".json"; fs::is_regular_file(companion)) {
    files.push_back({companion, companion.filename().string()});
  }
  return files;
}

}  // namespace switchyard
