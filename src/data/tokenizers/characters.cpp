#include "data/tokenizers/characters.h"

#include <cstdlib>
#include <memory>

#include <utf8proc.h>

#include "base/error.h"
#include "data/tokenizers/regex.h"
#include "data/tokenizers/unicode_tables.h"
#include "data/tokenizers/utf8.h"

namespace switchyard {
namespace {

// utf8proc 2.8 loses this character behind a Hangul syllable, as if it were a trailing consonant.
constexpr char32_t kBeforeTrailingJamo = 0x11a7;

bool is_ascii(std::string_view text) {
  unsigned char all = 0;
  for (const char c : text) {
    all = static_cast<unsigned char>(all | static_cast<unsigned char>(c));
  }
  return all < 0x80;
}

// Appends the normal form of `text`, in which the tables of utf8proc and the package agree.
void append_normalized(std::string_view text, utf8proc_option_t options, std::string& out) {
  utf8proc_uint8_t* result = nullptr;
  const auto size = utf8proc_map(reinterpret_cast<const utf8proc_uint8_t*>(text.data()),
                                 static_cast<utf8proc_ssize_t>(text.size()), &result, options);
  const std::unique_ptr<utf8proc_uint8_t, decltype(&std::free)> owned(result, &std::free);
  check<FileError>(size >= 0, "cannot bring {} bytes of text into a normal form: {}", text.size(),
                   utf8proc_errmsg(size));
  out.append(reinterpret_cast<const char*>(result), static_cast<size_t>(size));
}

char32_t lowercase_of(char32_t character) {
  for (const auto& [from, to] : newer_lowercase()) {
    if (character == from) {
      return to;
    }
  }
  return static_cast<char32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(character)));
}

}  // namespace

bool is_white_space(char32_t c) {
  return (c >= 9 && c <= 13) || c == ' ' || c == 0x85 || c == 0xa0 || c == 0x1680 ||
         (c >= 0x2000 && c <= 0x200a) || c == 0x2028 || c == 0x2029 || c == 0x202f || c == 0x205f ||
         c == 0x3000;
}

bool is_number(char32_t c) {
  return c < 0x80 ? c >= '0' && c <= '9' : is_in(number_ranges(), c);
}

bool is_punctuation(char32_t c) {
  return is_in(punctuation_ranges(), c);
}

bool is_accent(char32_t c) {
  return is_in(accent_ranges(), c);
}

bool is_word_character(char32_t c) {
  static const Regex word("\\w", RegexSyntax::kRust, "word characters");
  std::string text;
  append_character(text, c);
  size_t begin = 0;
  size_t end = 0;
  return word.find(text, 0, begin, end);
}

std::string normalize(std::string_view text, NormalForm form, NormalTables tables) {
  if (is_ascii(text)) {
    return std::string(text);
  }
  int options = UTF8PROC_STABLE;
  options |=
      form == NormalForm::kNfc || form == NormalForm::kNfkc ? UTF8PROC_COMPOSE : UTF8PROC_DECOMPOSE;
  if (form == NormalForm::kNfkc || form == NormalForm::kNfkd) {
    options |= UTF8PROC_COMPAT;
  }
  // Nothing reaches across characters that the package knows nothing of.
  std::string out;
  out.reserve(text.size());
  size_t done = 0;
  for (size_t position = 0; position < text.size();) {
    const size_t begin = position;
    const char32_t c = next_character(text, position);
    if (c == kBeforeTrailingJamo || (c >= 0x80 && tables == NormalTables::kTokenizersPackage &&
                                     is_in(ranges_unknown_to_normal_forms(), c))) {
      append_normalized(text.substr(done, begin - done), static_cast<utf8proc_option_t>(options),
                        out);
      out += text.substr(begin, position - begin);
      done = position;
    }
  }
  append_normalized(text.substr(done), static_cast<utf8proc_option_t>(options), out);
  return out;
}

std::string lowercase(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (size_t position = 0; position < text.size();) {
    const char32_t c = next_character(text, position);
    if (c == 0x130) {  // the only character that becomes two
      out += "i\xcc\x87";
    } else {
      append_character(out, lowercase_of(c));
    }
  }
  return out;
}

}  // namespace switchyard
