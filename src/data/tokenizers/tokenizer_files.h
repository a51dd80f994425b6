#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "data/tokenizer.h"

namespace switchyard {

// Reads the tokenizer in a file or folder; which kinds are known is said in docs/tokenizers.md.
// `path` also becomes its name. Throws FileError for a file that is of no known kind, or is
// damaged.
std::unique_ptr<Tokenizer> read_tokenizer(const std::string& path);

// A file and the name that it has to have in a folder of its own.
struct TokenizerFile {
  std::filesystem::path path;
  std::string name;
};

// The files that make read_tokenizer(`path`) what it is, and those beside them that only say more
// about it, such as a chat template. Without what belongs to a model: an end of document that
// config.json or generation_config.json says is not among them. Throws FileError.
std::vector<TokenizerFile> files_of_tokenizer(const std::string& path);

// Whether a folder with a file of this name holds a tokenizer.
bool is_tokenizer(const std::filesystem::path& file);
// Whether a file of this name is one that files_of_tokenizer() may give.
bool belongs_to_tokenizer(const std::filesystem::path& file);

}  // namespace switchyard
