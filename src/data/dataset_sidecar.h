#pragma once

#include <cstdint>
#include <string>

namespace switchyard {

// What the .bin and .idx files of a data set do not say about themselves, kept beside them as
// PREFIX.json. It is written last, so that a data set without it is one that was not finished, or
// one made by another program.
struct DatasetSidecar {
  std::string tokenizer;        // its name, as in data.tokenizer
  uint64_t tokenizer_hash = 0;  // Tokenizer::fingerprint()
  int64_t vocab_size = 0;
  int64_t end_of_document = 0;  // the id that ends each document; -1: none does
  int64_t num_documents = 0;
  int64_t num_tokens = 0;
  uint32_t bin_crc32c = 0;  // of the whole .bin file
  uint32_t idx_crc32c = 0;  // of the whole .idx file

  bool operator==(const DatasetSidecar&) const = default;
};

std::string to_json(const DatasetSidecar& sidecar);

// Throws FileError, naming `path` and the field, for text that is not what to_json writes: broken
// JSON, a missing, unknown, mistyped or impossible field, another version.
DatasetSidecar sidecar_from_json(const std::string& text, const std::string& path);

}  // namespace switchyard
