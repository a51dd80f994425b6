#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "data/dataset_sidecar.h"
#include "data/tokenizer.h"

namespace switchyard {

struct TokenizeProgress {
  int64_t num_files = 0;
  int64_t num_bytes = 0;  // of all files
  int64_t files_done = 0;
  int64_t bytes_done = 0;
  int64_t tokens = 0;
};

// Makes the data set PREFIX.{bin,idx,json} of text files. Each .txt file is one document, in the
// order given, followed by the tokenizer's end of document. `report` is called after each file.
//
// Everything that can be refused is refused before the first file is read: throws ConfigError for a
// prefix that names no file, and FileError, naming the file, for one that is missing, empty or of
// another kind, and for a data set that is already there, unless `overwrite`.
DatasetSidecar tokenize_files(const std::vector<std::string>& files, const Tokenizer& tokenizer,
                              const std::string& prefix, bool overwrite,
                              const std::function<void(const TokenizeProgress&)>& report);

}  // namespace switchyard
