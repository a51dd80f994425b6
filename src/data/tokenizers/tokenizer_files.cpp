#include "data/tokenizers/tokenizer_files.h"

#include <algorithm>
#include <filesystem>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "base/mapped_file.h"
#include "data/tokenizers/sentencepiece_tokenizer.h"
#include "data/tokenizers/tiktoken_file.h"
#include "data/tokenizers/tokenizer_json.h"

namespace switchyard {
namespace {

namespace fs = std::filesystem;

// The file in a folder that wins; the kinds in this order, of one kind the first by name.
std::string find_in_folder(const fs::path& folder) {
  std::vector<fs::path> files;
  for (const auto& entry : fs::directory_iterator(folder)) {
    if (entry.is_regular_file()) {
      files.push_back(entry.path());
    }
  }
  std::sort(files.begin(), files.end());
  for (const char* name :
       {"tokenizer.json", "tekken.json", "tokenizer.model", ".model", ".tiktoken"}) {
    for (const fs::path& file : files) {
      if (file.filename() == name || (name[0] == '.' && file.extension() == name)) {
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

}  // namespace

std::unique_ptr<Tokenizer> read_tokenizer(const std::string& path) {
  const std::string file = fs::is_directory(path) ? find_in_folder(path) : path;
  if (fs::path(file).extension() == ".json") {
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

}  // namespace switchyard
