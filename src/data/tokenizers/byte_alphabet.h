#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace switchyard {

// The alphabet of byte-level tokenizers (GPT-2): each byte is written as a printable character, a
// space as U+0120. `text` may be any bytes; the result is valid UTF-8.
std::string to_byte_alphabet(std::string_view text);

// The bytes that `token` writes; none if one of its characters is not in the alphabet.
std::optional<std::string> from_byte_alphabet(std::string_view token);

}  // namespace switchyard
