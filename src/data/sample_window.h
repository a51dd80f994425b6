#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "config/sections.h"
#include "data/indexed_dataset.h"
#include "data/tokenizer.h"

namespace switchyard {

// How the documents of a data set become sequences and labels.
struct DocumentOptions {
  // kJoined: a stretch of the stream is one sequence. kPacked: each document in it is one, and the
  // last token of a document, which nothing of it follows, has no label.
  Documents documents = Documents::kJoined;
  // kJoined: the first token of a document is no label that counts.
  bool mask_end_of_document = false;
};

DocumentOptions document_options(const DataConfig& data);

// How data sets are read, beside what their files say.
struct DatasetOptions {
  DocumentOptions documents;
  // Data without a sidecar: ids must be below this (0: the tokenizer's number), and the user must
  // have named the tokenizer.
  int64_t vocab_size = 0;
  bool is_tokenizer_stated = false;
};

// Opens a data set of this tokenizer (IndexedDataset::check_tokenizer), whose line it logs.
IndexedDataset open_dataset(const std::string& prefix, const Tokenizer& tokenizer,
                            const DatasetOptions& options);

// Where a stretch of tokens goes: `num_tokens` of each.
struct WindowRows {
  int64_t* tokens;
  int64_t* labels;  // the token that follows each, -100 for none
  float* weights;   // 1 where the label counts, else 0
};

// Copies tokens first to first + num_tokens - 1 of a data set's stream, with labels and weights,
// and appends the lengths of their sequences to `lengths`. The stream must hold one token more.
// Throws FileError as IndexedDataset::read does.
void read_window(const IndexedDataset& set, int64_t first, int64_t num_tokens,
                 const DocumentOptions& options, const WindowRows& rows,
                 std::vector<int64_t>& lengths);

}  // namespace switchyard
