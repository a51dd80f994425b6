#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "data/tokenizers/regex.h"

namespace switchyard {

// A part of the text on its way to the model.
struct Piece {
  std::string_view text;
  bool at_start = false;  // whether the document begins with it
};

// Takes pieces one by one; a piece is valid during the call only.
class PieceReader {
 public:
  virtual void read(const Piece& piece) = 0;

 protected:
  ~PieceReader() = default;
};

// Cuts a piece of text into smaller ones, and may change them. The kinds below are those of
// tokenizer.json's `pre_tokenizer`, and equal to the tokenizers package. Const and thread-safe.
class PreTokenizer {
 public:
  virtual ~PreTokenizer() = default;

  // Gives the pieces of `piece` to `out` in order. An empty one may be among them.
  virtual void split(const Piece& piece, PieceReader& out) const = 0;
};

// One after the other; empty pieces are dropped in between.
class PreTokenizerSequence : public PreTokenizer {
 public:
  explicit PreTokenizerSequence(std::vector<std::unique_ptr<PreTokenizer>> steps);
  void split(const Piece& piece, PieceReader& out) const override;

 private:
  std::vector<std::unique_ptr<PreTokenizer>> steps_;
};

// What becomes of what a pattern matches, the delimiter.
enum class SplitBehavior { kRemoved, kIsolated, kMergedWithPrevious, kMergedWithNext, kContiguous };

class RegexSplit : public PreTokenizer {
 public:
  RegexSplit(Regex regex, SplitBehavior behavior, bool is_inverted);
  void split(const Piece& piece, PieceReader& out) const override;

 private:
  Regex regex_;
  SplitBehavior behavior_;
  bool is_inverted_;
};

// Splits at single characters for which a function is true.
class CharacterSplit : public PreTokenizer {
 public:
  CharacterSplit(bool (*is_delimiter)(char32_t), SplitBehavior behavior);
  void split(const Piece& piece, PieceReader& out) const override;

 private:
  bool (*is_delimiter_)(char32_t);
  SplitBehavior behavior_;
};

// Optionally a space in front, optionally GPT-2's pattern, then each byte becomes a character of
// the byte alphabet; that is left out where the model takes the bytes as they are.
class ByteLevelSplit : public PreTokenizer {
 public:
  ByteLevelSplit(bool add_prefix_space, bool use_regex, bool keeps_bytes);
  void split(const Piece& piece, PieceReader& out) const override;

 private:
  bool add_prefix_space_;
  bool keeps_bytes_;
  std::unique_ptr<RegexSplit> pattern_;
};

enum class PrependScheme { kAlways, kNever, kFirst };

// Writes spaces as `replacement`, prepends one, and cuts before each.
class MetaspaceSplit : public PreTokenizer {
 public:
  MetaspaceSplit(std::string replacement, PrependScheme scheme, bool cuts);
  void split(const Piece& piece, PieceReader& out) const override;

 private:
  std::string replacement_;
  PrependScheme scheme_;
  bool cuts_;
};

}  // namespace switchyard
