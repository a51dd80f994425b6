#include "data/indexed_dataset.h"

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <limits>
#include <utility>

#include "base/crc32c.h"
#include "base/error.h"
#include "data/indexed_format.h"

namespace switchyard {
namespace {

constexpr const char* kAdvice = "write the data set again with `switchyard tokenize`";

// The arrays of the index begin at byte 34, so nothing in it is aligned.
template <class T>
T load(std::span<const std::byte> bytes, int64_t offset) {
  T value;
  std::memcpy(&value, bytes.data() + offset, sizeof(T));
  return value;
}

template <class Stored>
void widen(const std::byte* from, std::span<int64_t> to) {
  for (size_t i = 0; i < to.size(); ++i) {
    Stored token;
    std::memcpy(&token, from + i * sizeof(Stored), sizeof(Stored));
    to[i] = token;  // NOLINT(bugprone-signed-char-misuse): an int8 here is a number
  }
}

void widen(TokenType type, const std::byte* from, std::span<int64_t> to) {
  switch (type) {
    case TokenType::kUint8:
      return widen<uint8_t>(from, to);
    case TokenType::kInt8:
      return widen<int8_t>(from, to);
    case TokenType::kInt16:
      return widen<int16_t>(from, to);
    case TokenType::kInt32:
      return widen<int32_t>(from, to);
    case TokenType::kInt64:
      return widen<int64_t>(from, to);
    case TokenType::kUint16:
      return widen<uint16_t>(from, to);
  }
}

// A file of any size is read without ever holding much of it.
uint32_t checksum_of(const MappedFile& file) {
  constexpr size_t kStep = size_t{16} << 20;
  uint32_t crc = 0;
  for (size_t start = 0; start < file.bytes().size(); start += kStep) {
    const auto part = file.bytes().subspan(start, std::min(kStep, file.bytes().size() - start));
    crc = crc32c(part.data(), part.size(), crc);
    file.release_pages();
  }
  return crc;
}

}  // namespace

IndexedDataset::IndexedDataset(std::string prefix)
    : prefix_(std::move(prefix)), idx_(prefix_ + ".idx"), bin_(prefix_ + ".bin") {
  read_header();
  check_sequences();
  check_documents();
  num_tokens_ = static_cast<int64_t>(bin_.bytes().size()) / bytes_of(type_);
  read_sidecar();
  // The index was read in one go; training needs none of it.
  idx_.release_pages();
}

void IndexedDataset::read_header() {
  const auto size = static_cast<int64_t>(idx_.bytes().size());
  check<FileError>(size >= IndexLayout::kHeaderBytes,
                   "{} has {} bytes, its header alone has {}; {}", idx_.path(), size,
                   IndexLayout::kHeaderBytes, kAdvice);
  check<FileError>(
      std::memcmp(idx_.bytes().data(), IndexLayout::kMagic.data(), IndexLayout::kMagic.size()) == 0,
      "{} is not an index of tokens: it does not begin with MMIDIDX; give the prefix of a .bin and "
      ".idx pair",
      idx_.path());
  const auto version = load<uint64_t>(idx_.bytes(), IndexLayout::kVersionOffset);
  check<FileError>(version == IndexLayout::kVersion, "{} has version {}, expected {}; {}",
                   idx_.path(), version, IndexLayout::kVersion, kAdvice);
  const auto code = load<uint8_t>(idx_.bytes(), IndexLayout::kTypeOffset);
  const auto type = token_type_of_code(code);
  check<FileError>(type.has_value(),
                   "{} has token type {}, expected 1, 2, 3, 4, 5 or 8 (whole numbers); {}",
                   idx_.path(), code, kAdvice);
  type_ = *type;

  const auto sequences = load<uint64_t>(idx_.bytes(), IndexLayout::kSequencesOffset);
  const auto bounds = load<uint64_t>(idx_.bytes(), IndexLayout::kBoundsOffset);
  // Both are bounded by the size of the file before anything is computed from them.
  const auto limit = static_cast<uint64_t>(size);
  check<FileError>(sequences <= limit && bounds >= 1 && bounds <= limit,
                   "{} announces {} sequences and {} document bounds in {} bytes; {}", idx_.path(),
                   sequences, bounds, size, kAdvice);
  num_sequences_ = static_cast<int64_t>(sequences);
  num_documents_ = static_cast<int64_t>(bounds) - 1;
  const int64_t expected = IndexLayout{num_sequences_, num_documents_}.size();
  check<FileError>(
      size == expected, "{} has {} bytes, {} sequences and {} documents make {}{}; {}", idx_.path(),
      size, num_sequences_, num_documents_, expected,
      size == expected + num_sequences_ ? " (with multimodal modes: not supported)" : "", kAdvice);
}

void IndexedDataset::release_now_and_then(int64_t entry) const {
  constexpr int64_t kEntries = int64_t{1} << 20;
  if (entry % kEntries == kEntries - 1) {
    idx_.release_pages();
  }
}

void IndexedDataset::check_sequences() const {
  const IndexLayout layout{num_sequences_, num_documents_};
  const int64_t token_bytes = bytes_of(type_);
  const auto bin_size = static_cast<int64_t>(bin_.bytes().size());
  int64_t end = 0;
  for (int64_t i = 0; i < num_sequences_; ++i) {
    const int64_t length = load<int32_t>(idx_.bytes(), layout.length_offset(i));
    const auto pointer = load<int64_t>(idx_.bytes(), layout.pointer_offset(i));
    release_now_and_then(i);
    check<FileError>(length >= 0 && pointer == end,
                     "{}: sequence {} of {} tokens begins at byte {}, expected {}; {}", idx_.path(),
                     i, length, pointer, end, kAdvice);
    end += length * token_bytes;
    check<FileError>(end <= bin_size,
                     "{} has {} bytes, but sequence {} of {} ends at byte {}: it is cut short or "
                     "belongs to another index; {}",
                     bin_.path(), bin_size, i, idx_.path(), end, kAdvice);
  }
  check<FileError>(end == bin_size,
                   "{} has {} bytes, expected {} by {}: it belongs to another index; {}",
                   bin_.path(), bin_size, end, idx_.path(), kAdvice);
}

void IndexedDataset::check_documents() const {
  const IndexLayout layout{num_sequences_, num_documents_};
  int64_t before = 0;
  for (int64_t i = 0; i <= num_documents_; ++i) {
    const auto bound = load<int64_t>(idx_.bytes(), layout.bound_offset(i));
    release_now_and_then(i);
    const bool is_first = i == 0;
    check<FileError>(is_first ? bound == 0 : bound >= before && bound <= num_sequences_,
                     "{}: document bound {} is {}, expected {} to {}; {}", idx_.path(), i, bound,
                     before, is_first ? 0 : num_sequences_, kAdvice);
    before = bound;
  }
  check<FileError>(before == num_sequences_,
                   "{}: the last document ends with sequence {} of {}; {}", idx_.path(), before,
                   num_sequences_, kAdvice);
}

void IndexedDataset::read_sidecar() {
  const std::string path = prefix_ + ".json";
  if (!std::filesystem::exists(path)) {
    return;
  }
  const MappedFile file(path);
  const std::string text(reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size());
  sidecar_ = sidecar_from_json(text, path);
  check<FileError>(
      sidecar_->num_documents == num_documents_ && sidecar_->num_tokens == num_tokens_,
      "{} states {} documents and {} tokens, but {} has {} and {}: they are of different data "
      "sets; {}",
      path, sidecar_->num_documents, sidecar_->num_tokens, idx_.path(), num_documents_, num_tokens_,
      kAdvice);
  const uint32_t crc = checksum_of(idx_);
  check<FileError>(crc == sidecar_->idx_crc32c,
                   "{} has checksum {:08x}, {} states {:08x}: one of them was altered; {}",
                   idx_.path(), crc, path, sidecar_->idx_crc32c, kAdvice);
  vocab_size_ = sidecar_->vocab_size;
  check<FileError>(
      vocab_size_ - 1 <= largest_of(type_),
      "{} stores tokens as {}, which holds ids up to {}: too small for the vocabulary of "
      "{} that {} states; {}",
      bin_.path(), name_of(type_), largest_of(type_), vocab_size_, path, kAdvice);
}

int64_t IndexedDataset::document_start(int64_t document) const {
  const IndexLayout layout{num_sequences_, num_documents_};
  const auto sequence = load<int64_t>(idx_.bytes(), layout.bound_offset(document));
  return sequence == num_sequences_
             ? num_tokens_
             : load<int64_t>(idx_.bytes(), layout.pointer_offset(sequence)) / bytes_of(type_);
}

int64_t IndexedDataset::document_of(int64_t token) const {
  // The last document that begins at or before the token: documents before it may be empty.
  int64_t low = 0;
  int64_t high = num_documents_ - 1;
  while (low < high) {
    const int64_t middle = low + (high - low + 1) / 2;
    if (document_start(middle) <= token) {
      low = middle;
    } else {
      high = middle - 1;
    }
  }
  return low;
}

void IndexedDataset::read(int64_t first, std::span<int64_t> tokens) const {
  check<FileError>(first >= 0 && first + std::ssize(tokens) <= num_tokens_,
                   "{} has {} tokens, {} to {} were asked for", bin_.path(), num_tokens_, first,
                   first + std::ssize(tokens) - 1);
  widen(type_, bin_.bytes().data() + first * bytes_of(type_), tokens);
  const auto bad = std::find_if(tokens.begin(), tokens.end(),
                                [this](int64_t id) { return id < 0 || id >= vocab_size_; });
  if (bad == tokens.end()) {
    return;
  }
  const int64_t position = first + (bad - tokens.begin());
  check<FileError>(!sidecar_,
                   "{}: token {} is {}, outside the vocabulary of {}: the file was altered; {}",
                   bin_.path(), position, *bad, vocab_size_, kAdvice);
  throw FileError(fmt::format(
      "{}: token {} is {}, outside the vocabulary of {}: the data, which have no {}.json, were "
      "made with another tokenizer; state it as data.tokenizer",
      bin_.path(), position, *bad, vocab_size_, prefix_));
}

void IndexedDataset::verify_checksum() const {
  check<FileError>(sidecar_.has_value(), "{}.json is missing, and with it the checksum of {}; {}",
                   prefix_, bin_.path(), kAdvice);
  const uint32_t crc = checksum_of(bin_);
  check<FileError>(crc == sidecar_->bin_crc32c,
                   "{} has checksum {:08x}, {}.json states {:08x}: the tokens were altered; {}",
                   bin_.path(), crc, prefix_, sidecar_->bin_crc32c, kAdvice);
}

uint32_t IndexedDataset::checksum_of_beginning() const {
  constexpr size_t kMegabyte = size_t{1} << 20;
  const auto beginning = bin_.bytes().first(std::min(kMegabyte, bin_.bytes().size()));
  return crc32c(beginning.data(), beginning.size(), checksum_of(idx_));
}

std::optional<std::string> IndexedDataset::check_tokenizer(const Tokenizer& tokenizer,
                                                           int64_t vocab_size, bool is_stated) {
  if (!sidecar_) {
    check<FileError>(is_stated,
                     "{}.json is missing, which names the tokenizer of the data; state it as "
                     "data.tokenizer, or {}",
                     prefix_, kAdvice);
    vocab_size_ = vocab_size;
    constexpr int64_t kToTry = 1 << 16;
    std::vector<int64_t> head(static_cast<size_t>(std::min(num_tokens_, kToTry)));
    read(0, head);
    return fmt::format(
        "{} has no {}.json that names its tokenizer: taken to be {}, each id checked against its "
        "{} when it is read",
        bin_.path(), prefix_, tokenizer.name(), vocab_size_);
  }
  check<ConfigError>(
      sidecar_->tokenizer_hash == tokenizer.fingerprint(),
      "data.tokenizer is \"{}\" ({:016x}), but {} was made with \"{}\" ({:016x}): set "
      "data.tokenizer to the one of the data, or tokenize again",
      tokenizer.name(), tokenizer.fingerprint(), prefix_, sidecar_->tokenizer,
      sidecar_->tokenizer_hash);
  return std::nullopt;
}

}  // namespace switchyard
