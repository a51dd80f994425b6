#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/streamed_file.h"
#include "data/dataset_sidecar.h"
#include "data/token_type.h"
#include "data/tokenizer.h"

namespace switchyard {

// Writes PREFIX.bin, PREFIX.idx and PREFIX.json (format: IndexedDataset), the first two equal to
// what megatron-core's IndexedDatasetBuilder writes for the same documents, one sequence each.
//
// Memory grows by four bytes per document. All three files are written beside their place; without
// finish() nothing is left behind and a data set already there stays as it is. Throws FileError,
// naming the file, when it cannot be written.
class IndexedDatasetWriter {
 public:
  // Makes the folder of `prefix` when it is missing. `type` is uint16 or int32, by default what
  // Megatron takes for the vocabulary; `end_of_document` the id that ends each document, -1 when
  // none does, by default the tokenizer's. Throws ConfigError when the type is too small for the
  // vocabulary or the tokenizer has no such id.
  IndexedDatasetWriter(const std::string& prefix, const Tokenizer& tokenizer,
                       std::optional<TokenType> type = std::nullopt,
                       std::optional<int64_t> end_of_document = std::nullopt);

  // Goes on with the document. At most 2^31 - 1 tokens in all, which is what the format can say.
  void append(std::span<const int32_t> ids);
  void end_document();

  // `ids` is one document, with its end of document.
  void add_document(std::span<const int32_t> ids) {
    append(ids);
    end_document();
  }

  int64_t num_documents() const { return sidecar_.num_documents; }

  // Puts the files in their places, the sidecar last.
  DatasetSidecar finish();

 private:
  void write_index();

  StreamedFile bin_;
  StreamedFile idx_;
  StreamedFile json_;
  TokenType type_;
  DatasetSidecar sidecar_;
  std::vector<int32_t> lengths_;  // [documents]
  int64_t length_ = 0;            // of the document under way
};

}  // namespace switchyard
