#include "data/tokenizers/pre_tokenizer.h"

#include <utility>

#include "data/tokenizers/byte_alphabet.h"
#include "data/tokenizers/utf8.h"

namespace switchyard {
namespace {

// Hands on the parts of a piece, where delimiters and what lies between them alternate or repeat,
// as `behavior` says. Parts arrive in order and cover the piece; finish() comes after the last.
class PartMerger {
 public:
  PartMerger(const Piece& piece, SplitBehavior behavior, PieceReader& out)
      : piece_(piece), behavior_(behavior), out_(out) {}

  void add(size_t begin, size_t end, bool is_delimiter) {
    switch (behavior_) {
      case SplitBehavior::kRemoved:
        if (!is_delimiter) {
          emit(begin, end);
        }
        break;
      case SplitBehavior::kIsolated:
        emit(begin, end);
        break;
      case SplitBehavior::kContiguous:
        add_or_extend(begin, end, is_delimiter == was_delimiter_);
        break;
      case SplitBehavior::kMergedWithPrevious:
        add_or_extend(begin, end, is_delimiter && !was_delimiter_);
        break;
      case SplitBehavior::kMergedWithNext:
        add_or_extend(begin, end, !is_delimiter && was_delimiter_);
        break;
    }
    was_delimiter_ = is_delimiter;
  }

  void finish() {
    if (has_held_) {
      emit(held_begin_, held_end_);
    }
  }

 private:
  void add_or_extend(size_t begin, size_t end, bool extends) {
    if (!has_held_ || !extends) {
      finish();
      held_begin_ = begin;
    }
    held_end_ = end;
    has_held_ = true;
  }

  void emit(size_t begin, size_t end) {
    out_.read({piece_.text.substr(begin, end - begin), piece_.at_start && begin == 0});
  }

  const Piece& piece_;
  const SplitBehavior behavior_;
  PieceReader& out_;
  bool was_delimiter_ = false;
  bool has_held_ = false;
  size_t held_begin_ = 0;
  size_t held_end_ = 0;
};

using Steps = std::vector<std::unique_ptr<PreTokenizer>>;

// Gives pieces to the step with this index, and what comes out to the one behind it.
class StepReader final : public PieceReader {
 public:
  StepReader(const Steps& steps, size_t index, PieceReader& out)
      : steps_(steps), index_(index), out_(out) {}

  void read(const Piece& piece) override {
    if (piece.text.empty()) {
      return;
    }
    if (index_ == steps_.size()) {
      out_.read(piece);
      return;
    }
    StepReader next(steps_, index_ + 1, out_);
    steps_[index_]->split(piece, next);
  }

 private:
  const Steps& steps_;
  const size_t index_;
  PieceReader& out_;
};

constexpr const char* kGpt2Pattern =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

// Turns each piece into the byte alphabet.
class ByteAlphabetReader final : public PieceReader {
 public:
  explicit ByteAlphabetReader(PieceReader& out) : out_(out) {}
  void read(const Piece& piece) override {
    const std::string text = to_byte_alphabet(piece.text);
    out_.read({text, piece.at_start});
  }

 private:
  PieceReader& out_;
};

}  // namespace

PreTokenizerSequence::PreTokenizerSequence(Steps steps) : steps_(std::move(steps)) {}

void PreTokenizerSequence::split(const Piece& piece, PieceReader& out) const {
  StepReader(steps_, 0, out).read(piece);
}

RegexSplit::RegexSplit(Regex regex, SplitBehavior behavior, bool is_inverted)
    : regex_(std::move(regex)), behavior_(behavior), is_inverted_(is_inverted) {}

void RegexSplit::split(const Piece& piece, PieceReader& out) const {
  PartMerger merger(piece, behavior_, out);
  regex_.for_each_part(piece.text, [&](size_t begin, size_t end, bool is_match) {
    merger.add(begin, end, is_match != is_inverted_);
  });
  merger.finish();
}

CharacterSplit::CharacterSplit(bool (*is_delimiter)(char32_t), SplitBehavior behavior)
    : is_delimiter_(is_delimiter), behavior_(behavior) {}

void CharacterSplit::split(const Piece& piece, PieceReader& out) const {
  PartMerger merger(piece, behavior_, out);
  size_t covered = 0;
  for (size_t position = 0; position < piece.text.size();) {
    const size_t begin = position;
    if (is_delimiter_(next_character(piece.text, position))) {
      if (covered != begin) {
        merger.add(covered, begin, false);
      }
      merger.add(begin, position, true);
      covered = position;
    }
  }
  if (covered != piece.text.size()) {
    merger.add(covered, piece.text.size(), false);
  }
  merger.finish();
}

ByteLevelSplit::ByteLevelSplit(bool add_prefix_space, bool use_regex, bool keeps_bytes)
    : add_prefix_space_(add_prefix_space), keeps_bytes_(keeps_bytes) {
  if (use_regex) {
    pattern_ = std::make_unique<RegexSplit>(
        Regex(kGpt2Pattern, RegexSyntax::kOniguruma, "pre_tokenizer ByteLevel"),
        SplitBehavior::kIsolated, false);
  }
}

void ByteLevelSplit::split(const Piece& piece, PieceReader& out) const {
  std::string prefixed;
  Piece text = piece;
  if (add_prefix_space_ && !piece.text.starts_with(' ')) {
    prefixed = " ";
    prefixed += piece.text;
    text.text = prefixed;
  }
  ByteAlphabetReader alphabet(out);
  PieceReader& reader = keeps_bytes_ ? out : static_cast<PieceReader&>(alphabet);
  if (pattern_ != nullptr) {
    pattern_->split(text, reader);
  } else {
    reader.read(text);
  }
}

MetaspaceSplit::MetaspaceSplit(std::string replacement, PrependScheme scheme, bool cuts)
    : replacement_(std::move(replacement)), scheme_(scheme), cuts_(cuts) {}

void MetaspaceSplit::split(const Piece& piece, PieceReader& out) const {
  std::string text;
  text.reserve(piece.text.size() + piece.text.size() / 2 + replacement_.size());
  const bool has_prefix = piece.text.starts_with(' ') || piece.text.starts_with(replacement_);
  if (!has_prefix &&
      (scheme_ == PrependScheme::kAlways || (scheme_ == PrependScheme::kFirst && piece.at_start))) {
    text = replacement_;
  }
  for (const char c : piece.text) {
    if (c == ' ') {
      text += replacement_;
    } else {
      text += c;
    }
  }
  if (!cuts_) {
    out.read({text, piece.at_start});
    return;
  }
  size_t begin = 0;
  while (begin < text.size()) {
    const size_t end = std::min(text.size(), text.find(replacement_, begin + 1));
    out.read({std::string_view(text).substr(begin, end - begin), piece.at_start && begin == 0});
    begin = end;
  }
}

}  // namespace switchyard
