#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace switchyard {

// Reads the character at `position` of valid UTF-8 and moves `position` behind it.
char32_t next_character(std::string_view text, size_t& position);

void append_character(std::string& text, char32_t character);

// Bytes of the character that starts with `lead`, in valid UTF-8.
inline size_t character_length(char lead) {
  const auto byte = static_cast<unsigned char>(lead);
  return byte < 0x80 ? 1 : byte < 0xe0 ? 2 : byte < 0xf0 ? 3 : 4;
}

enum class Utf8Scan { kCharacter, kBroken, kUnfinished };

// Looks at the character at the beginning of `text`, which is not empty. `length` becomes the bytes
// of the character, or of the longest part of it that is there (Unicode's "maximal subpart").
Utf8Scan scan_utf8(std::string_view text, size_t& length);

// Bytes at the beginning of `text` that are valid UTF-8, up to a broken or unfinished character.
size_t valid_utf8_prefix(std::string_view text);

// `text` with each longest broken beginning of a character replaced by U+FFFD, as Python's
// decode(errors="replace") and Rust's from_utf8_lossy do.
std::string repair_utf8(std::string_view text);

// The same for text that arrives in parts: what may still become a character is held back, so that
// the joined output is that of repair_utf8() for the joined input.
class Utf8Repair {
 public:
  void push(std::string_view bytes, std::string& text);
  void finish(std::string& text);  // what was held back is broken
  bool is_empty() const { return held_.empty(); }

 private:
  std::string held_;
};

}  // namespace switchyard
