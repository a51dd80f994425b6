#pragma once

#include <string>
#include <string_view>

namespace switchyard {

// Properties of single characters, as the tokenizers package sees them.
bool is_white_space(char32_t character);     // Unicode's White_Space
bool is_number(char32_t character);          // general category N
bool is_punctuation(char32_t character);     // general category P, and all punctuation of ASCII
bool is_accent(char32_t character);          // general category M, as in an older Unicode
bool is_word_character(char32_t character);  // \w of Rust's regex crate

enum class NormalForm { kNfc, kNfd, kNfkc, kNfkd };

// Whose tables of characters: those of the tokenizers package are older than Unicode 12, and to
// them characters that came later have no other form.
enum class NormalTables { kTokenizersPackage, kCurrent };

// Unicode's normal forms. `text` is valid UTF-8.
std::string normalize(std::string_view text, NormalForm form,
                      NormalTables tables = NormalTables::kTokenizersPackage);

// Each character in lower case by itself, without regard to its neighbours or a language.
std::string lowercase(std::string_view text);

}  // namespace switchyard
