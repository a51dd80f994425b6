#include "data/tokenizers/byte_alphabet.h"

#include <array>

#include "data/tokenizers/utf8.h"

namespace switchyard {
namespace {

struct Alphabet {
  std::array<char32_t, 256> character{};
  std::array<int, 512> byte{};  // -1 for a character that writes none

  Alphabet() {
    byte.fill(-1);
    char32_t other = 256;
    for (unsigned b = 0; b < 256; ++b) {
      const bool is_printable =
          (b >= '!' && b <= '~') || (b >= 0xa1 && b <= 0xac) || (b >= 0xae && b <= 0xff);
      character[b] = is_printable ? b : other++;
      byte[character[b]] = static_cast<int>(b);
    }
  }
};

const Alphabet& alphabet() {
  static const Alphabet made;
  return made;
}

}  // namespace

std::string to_byte_alphabet(std::string_view text) {
  std::string out;
  out.reserve(2 * text.size());
  for (const char c : text) {
    append_character(out, alphabet().character[static_cast<unsigned char>(c)]);
  }
  return out;
}

std::optional<std::string> from_byte_alphabet(std::string_view token) {
  std::string out;
  for (size_t position = 0; position < token.size();) {
    const char32_t c = next_character(token, position);
    if (c >= alphabet().byte.size() || alphabet().byte[c] < 0) {
      return std::nullopt;
    }
    out.push_back(static_cast<char>(alphabet().byte[c]));
  }
  return out;
}

}  // namespace switchyard
