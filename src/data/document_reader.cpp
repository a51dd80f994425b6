#include "data/document_reader.h"

#include <algorithm>
#include <utility>

#include "base/error.h"

namespace switchyard {
namespace {

constexpr size_t kChunk = size_t{1} << 20;

}  // namespace

std::optional<TextKind> text_kind(const std::string& path, bool split_lines) {
  const std::string name = uncompressed_name(path);
  if (name.ends_with(".jsonl")) {
    return TextKind::kJsonLines;
  }
  if (name.ends_with(".txt")) {
    return split_lines ? TextKind::kLines : TextKind::kDocument;
  }
  return std::nullopt;
}

DocumentReader::DocumentReader(const std::vector<std::string>& files, bool split_lines,
                               const Tokenizer& tokenizer)
    : files_(files), split_lines_(split_lines), tokenizer_(tokenizer) {}

void DocumentReader::open_next() {
  const std::string& path = files_[index_++];
  const auto kind = text_kind(path, split_lines_);
  check<ConfigError>(kind.has_value(), "{} is no text file that can be read", path);
  kind_ = *kind;
  source_ = open_text(path);
  line_ = 1;
  is_at_end_ = false;
}

// How much of what is pending can be handed out.
std::optional<size_t> DocumentReader::cut_place() const {
  if (is_at_end_) {
    return pending_.size();
  }
  if (pending_.size() < kChunk) {
    return std::nullopt;
  }
  const size_t place = kind_ == TextKind::kDocument
                           ? tokenizer_.cut_before(pending_, pending_.size())
                           : pending_.rfind('\n') + 1;  // npos + 1 is 0
  return place > 0 ? std::optional(place) : std::nullopt;
}

TextChunk DocumentReader::take(size_t size, bool is_end) {
  TextChunk chunk;
  chunk.path = &files_[index_ - 1];
  chunk.kind = kind_;
  chunk.first_line = line_;
  chunk.ends_document = is_end;
  chunk.text = pending_.substr(0, size);
  pending_.erase(0, size);
  line_ += std::count(chunk.text.begin(), chunk.text.end(), '\n');
  chunk.bytes_done = bytes_before_ + source_->consumed();
  chunk.files_done = static_cast<int64_t>(is_end ? index_ : index_ - 1);
  return chunk;
}

std::optional<TextChunk> DocumentReader::next() {
  if (source_ == nullptr) {
    if (index_ == files_.size()) {
      return std::nullopt;
    }
    open_next();
  }
  while (true) {
    if (const auto place = cut_place()) {
      const bool is_end = is_at_end_;
      TextChunk chunk = take(*place, is_end);
      if (is_end) {
        bytes_before_ += source_->consumed();
        source_.reset();
      }
      return chunk;
    }
    const size_t before = pending_.size();
    pending_.resize(before + kChunk);
    const size_t got = source_->read(pending_.data() + before, kChunk);
    pending_.resize(before + got);
    is_at_end_ = got < kChunk;
  }
}

}  // namespace switchyard
