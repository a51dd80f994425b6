#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "data/tokenizers/byte_trie.h"

namespace switchyard {

// A token that is looked for in the text itself, before the model sees it.
struct AddedToken {
  int32_t id = 0;
  std::string content;
  bool is_special = false;    // left out when decoding, if asked
  bool is_normalized = true;  // looked for in the normalized text, not in the text as it came
  bool single_word = false;   // not inside a word
  bool strips_left = false;   // takes white space before it along
  bool strips_right = false;  // and behind it
};

// Finds added tokens in a text: at the leftmost place where one begins, the longest. A match that
// is refused because it stands inside a word is passed over whole. As the tokenizers package does.
class AddedTokenMatcher {
 public:
  // `text` is what is looked for: token.content, or its normalized form.
  void add(const AddedToken& token, std::string_view text);

  bool is_empty() const { return tokens_.empty(); }

  // Calls text_part(begin, end) and token(id), in order, for all of `text`; parts are not empty.
  template <class TextPart, class Token>
  void for_each_part(std::string_view text, TextPart&& text_part, Token&& token) const {
    size_t covered = 0;
    size_t from = 0;
    Match match;
    while (find(text, from, covered, match)) {
      if (covered < match.begin) {
        text_part(covered, match.begin);
      }
      token(match.id);
      covered = match.end;
      from = match.next;
    }
    if (covered < text.size()) {
      text_part(covered, text.size());
    }
  }

 private:
  struct Match {
    size_t begin = 0;
    size_t end = 0;
    size_t next = 0;  // where to look on
    int32_t id = 0;
  };
  bool find(std::string_view text, size_t from, size_t covered, Match& match) const;

  std::vector<AddedToken> tokens_;
  ByteTrie trie_;
  std::array<bool, 256> can_begin_{};
};

}  // namespace switchyard
