#include "data/indexed_dataset_writer.h"

#include <filesystem>
#include <limits>

#include "base/crc32c.h"
#include "base/error.h"
#include "data/indexed_format.h"

namespace switchyard {
namespace {

// The prefix itself, after making sure that its folder is there: StreamedFile reports if it is not.
std::string with_folder(const std::string& prefix) {
  const auto folder = std::filesystem::path(prefix).parent_path();
  std::error_code ignored;
  std::filesystem::create_directories(folder, ignored);
  return prefix;
}

template <class Stored>
std::vector<Stored> narrow(std::span<const int32_t> ids) {
  std::vector<Stored> stored(ids.size());
  for (size_t i = 0; i < ids.size(); ++i) {
    stored[i] = static_cast<Stored>(ids[i]);
  }
  return stored;
}

// Writes and goes on with the checksum.
void write_summed(StreamedFile& file, uint32_t& crc, const void* bytes, size_t size) {
  file.write(bytes, size);
  crc = crc32c(bytes, size, crc);
}

TokenType checked_type(std::optional<TokenType> asked, const Tokenizer& tokenizer) {
  const TokenType type = asked.value_or(token_type_for(tokenizer.vocab_size()));
  check<ConfigError>(type == TokenType::kUint16 || type == TokenType::kInt32,
                     "the token type {} is not written, only uint16 and int32", name_of(type));
  check<ConfigError>(
      tokenizer.vocab_size() - 1 <= largest_of(type),
      "the token type {} holds ids up to {}, too small for the {} tokens of {}; take "
      "int32",
      name_of(type), largest_of(type), tokenizer.vocab_size(), tokenizer.name());
  return type;
}

int64_t checked_end(std::optional<int64_t> asked, const Tokenizer& tokenizer) {
  const int64_t end = asked.value_or(tokenizer.end_of_document());
  check<ConfigError>(
      (asked && end == -1) || (end >= 0 && end < tokenizer.vocab_size()),
      "the end of document is {}, an id that the tokenizer {} lacks: its ids are 0 to "
      "{}",
      end, tokenizer.name(), tokenizer.vocab_size() - 1);
  return end;
}

}  // namespace

IndexedDatasetWriter::IndexedDatasetWriter(const std::string& prefix, const Tokenizer& tokenizer,
                                           std::optional<TokenType> type,
                                           std::optional<int64_t> end_of_document)
    : bin_(with_folder(prefix) + ".bin"),
      idx_(prefix + ".idx"),
      json_(prefix + ".json"),
      type_(checked_type(type, tokenizer)) {
  sidecar_.tokenizer = tokenizer.name();
  sidecar_.tokenizer_hash = tokenizer.fingerprint();
  sidecar_.vocab_size = tokenizer.vocab_size();
  sidecar_.end_of_document = checked_end(end_of_document, tokenizer);
}

void IndexedDatasetWriter::append(std::span<const int32_t> ids) {
  length_ += std::ssize(ids);
  check<FileError>(length_ <= std::numeric_limits<int32_t>::max(),
                   "{}: a document of {} tokens, at most {} fit the format; split it", bin_.path(),
                   length_, std::numeric_limits<int32_t>::max());
  if (type_ == TokenType::kUint16) {
    const auto stored = narrow<uint16_t>(ids);
    write_summed(bin_, sidecar_.bin_crc32c, stored.data(), stored.size() * sizeof(uint16_t));
  } else {
    write_summed(bin_, sidecar_.bin_crc32c, ids.data(), ids.size_bytes());
  }
  sidecar_.num_tokens += std::ssize(ids);
}

void IndexedDatasetWriter::end_document() {
  lengths_.push_back(static_cast<int32_t>(length_));
  length_ = 0;
  sidecar_.num_documents += 1;
}

DatasetSidecar IndexedDatasetWriter::finish() {
  write_index();
  json_.write(to_json(sidecar_));
  bin_.finish();
  idx_.finish();
  json_.finish();
  // Without its sidecar an old data set counts as unfinished, should this stop between two renames.
  std::error_code ignored;
  std::filesystem::remove(json_.path(), ignored);
  bin_.publish();
  idx_.publish();
  json_.publish();
  return sidecar_;
}

void IndexedDatasetWriter::write_index() {
  const auto put = [this](const auto& value) {
    write_summed(idx_, sidecar_.idx_crc32c, &value, sizeof(value));
  };
  write_summed(idx_, sidecar_.idx_crc32c, IndexLayout::kMagic.data(), IndexLayout::kMagic.size());
  put(IndexLayout::kVersion);
  put(type_);
  put(static_cast<uint64_t>(lengths_.size()));
  put(static_cast<uint64_t>(lengths_.size() + 1));
  for (const int32_t length : lengths_) {
    put(length);
  }
  int64_t pointer = 0;
  for (const int32_t length : lengths_) {
    put(pointer);
    pointer += length * bytes_of(type_);
  }
  // A document is one sequence, so its bounds count up.
  for (int64_t document = 0; document <= std::ssize(lengths_); ++document) {
    put(document);
  }
}

}  // namespace switchyard
