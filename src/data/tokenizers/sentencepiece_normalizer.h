#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "data/tokenizers/byte_trie.h"
#include "data/tokenizers/sentencepiece_model.h"

namespace switchyard {

// The rules of a SentencePiece model that replace the longest matching beginning of a text: a
// double array of darts-clone, which leads from bytes to places in a list of replacements.
class CharacterMap {
 public:
  // Throws FileError, which names `path`, for a map that is damaged.
  CharacterMap(std::string_view compiled, const std::string& path);

  struct Match {
    size_t length = 0;  // 0: no rule
    std::string_view replacement;
  };
  Match longest_match(std::string_view text) const;

 private:
  std::vector<uint32_t> units_;
  std::string replacements_;  // each ends with a zero byte
};

// Text to what the pieces of a SentencePiece model are found in: characters are replaced by rule,
// user-defined pieces left as they are, white space is joined, marked by U+2581, and put in front.
// Equal to sentencepiece's Normalizer.
class SentencePieceNormalizer {
 public:
  // Keeps a reference to `user_defined`, the pieces that stay as they are.
  SentencePieceNormalizer(const SentencePieceModel& model, const ByteTrie& user_defined,
                          const std::string& path);

  std::string apply(std::string_view text) const;  // text is valid UTF-8

 private:
  // What the beginning of `text` becomes, and how many bytes that was.
  std::string_view replace_prefix(std::string_view text, size_t& length) const;

  std::vector<CharacterMap> map_;  // none or one
  const ByteTrie& user_defined_;
  bool add_dummy_prefix_;
  bool space_as_suffix_;
  bool remove_extra_whitespaces_;
  std::string_view space_;  // how a space is written
};

}  // namespace switchyard
