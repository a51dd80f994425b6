#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <string>

#include "base/mapped_file.h"
#include "data/dataset_sidecar.h"
#include "data/token_type.h"
#include "data/tokenizer.h"

namespace switchyard {

// Tokenized documents in Megatron's format: PREFIX.bin holds the tokens of all documents one after
// the other, PREFIX.idx says where each begins, and PREFIX.json (ours; files made elsewhere lack
// it) which tokenizer made them.
//
// .idx, little-endian: the nine bytes "MMIDIDX\0\0"; u64 version, 1; u8 token type; u64 number of
// sequences n; u64 number of documents + 1; i32 lengths [n], in tokens; i64 pointers [n], in bytes
// from the start of .bin; i64 document bounds [documents + 1], counted in sequences. Matches
// megatron-core 0.16.1 datasets/indexed_dataset.py. Its per-sequence modes (multimodal data) are
// refused.
//
// Both files are mapped, not read. A const object may be used from several threads.
class IndexedDataset {
 public:
  // Checks every field of the index, the size of .bin, and that both agree with the sidecar, if
  // there is one. Throws FileError, naming the file, what was expected and what to do.
  explicit IndexedDataset(std::string prefix);

  const std::string& prefix() const { return prefix_; }
  TokenType token_type() const { return type_; }
  int64_t num_documents() const { return num_documents_; }
  int64_t num_sequences() const { return num_sequences_; }
  int64_t num_tokens() const { return num_tokens_; }
  const std::optional<DatasetSidecar>& sidecar() const { return sidecar_; }

  // Tokens before document `document`, 0 to num_documents(): the documents in order are one stream.
  int64_t document_start(int64_t document) const;
  // The document that holds token `token` of the stream, 0 to num_tokens() - 1.
  int64_t document_of(int64_t token) const;

  // Copies the tokens from `first` of the stream on. Throws FileError when one is negative or
  // outside the vocabulary that the sidecar states.
  void read(int64_t first, std::span<int64_t> tokens) const;

  // Reads all of .bin. Throws FileError when its checksum is not the sidecar's, or there is none.
  void verify_checksum() const;

  // CRC-32C of .idx and then of at most the first megabyte of .bin.
  uint32_t checksum_of_beginning() const;

  // Makes sure that ids mean what `tokenizer` says. Throws ConfigError when the sidecar names
  // another. Data without a sidecar are taken to be of it when `is_stated`, that is when the user
  // named it: returns a line to say so, and ids of `vocab_size` or more are errors when they are
  // read, the first of them now. When not stated, throws FileError.
  std::optional<std::string> check_tokenizer(const Tokenizer& tokenizer, int64_t vocab_size,
                                             bool is_stated);

 private:
  void read_header();
  void release_now_and_then(int64_t entry) const;
  void check_sequences() const;
  void check_documents() const;
  void read_sidecar();

  std::string prefix_;
  MappedFile idx_;
  MappedFile bin_;
  std::optional<DatasetSidecar> sidecar_;
  TokenType type_ = TokenType::kUint16;
  int64_t num_sequences_ = 0;
  int64_t num_documents_ = 0;
  int64_t num_tokens_ = 0;
  int64_t vocab_size_ = std::numeric_limits<int64_t>::max();  // ids are below it
};

}  // namespace switchyard
