#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "data/dataset_sidecar.h"
#include "data/token_type.h"
#include "data/tokenizer.h"

namespace switchyard {

struct TokenizeOptions {
  std::string prefix;           // of the data set to make
  bool overwrite = false;       // one that is there
  std::string key = "text";     // of the text in each line of a .jsonl file
  bool skip_bad_lines = false;  // of .jsonl files; they are counted
  bool split_lines = false;     // each line of a .txt file is a document
  int64_t num_threads = 0;      // 0: one per core
  std::optional<TokenType> token_type =
      std::nullopt;  // uint16 or int32; by default by the vocabulary
  // What ends each document: by default what the tokenizer says, kNoEnd for nothing.
  std::optional<int64_t> end_of_document = std::nullopt;
  static constexpr int64_t kNoEnd = -1;
};

struct TokenizeProgress {
  int64_t num_files = 0;
  int64_t num_bytes = 0;  // of all files, as they lie on disk
  int64_t files_done = 0;
  int64_t bytes_done = 0;
  int64_t tokens = 0;
  int64_t bad_lines = 0;        // left out
  int64_t empty_documents = 0;  // left out: lines without text
};

struct TokenizeResult {
  DatasetSidecar sidecar;
  TokenizeProgress totals;
};

// Makes the data set PREFIX.{bin,idx,json} of text files: .txt, each one document, and .jsonl, one
// document per line; both also as .gz and .zst. Documents keep the order of the files and lines,
// and the data set is the same for any number of threads. Memory does not grow with the text, but
// for a .txt document, which is encoded whole unless the tokenizer knows places to cut it. `report`
// is called after each part that is written.
//
// What can be refused is refused before the first file is read: throws ConfigError for a prefix
// that names no file, for a token type too small for the vocabulary and an end of document that the
// tokenizer lacks; FileError, naming the file, for one that is missing, empty or of another kind,
// and for a data set that is already there, unless `overwrite`; and, naming the line, for one that
// is no JSON with a text. Also for files without any document.
TokenizeResult tokenize_files(const std::vector<std::string>& files, const Tokenizer& tokenizer,
                              const TokenizeOptions& options,
                              const std::function<void(const TokenizeProgress&)>& report);

}  // namespace switchyard
