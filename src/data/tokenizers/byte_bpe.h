#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "data/tokenizer.h"
#include "data/tokenizers/regex.h"

namespace switchyard {

// A tokenizer of bytes with ranks, as tiktoken has them: a piece that is a token becomes that
// token; else the two neighbouring parts that make the token with the lowest rank are merged, the
// leftmost first. The rank of a token is its place in the order of its ids.
struct ByteBpe {
  std::string name;
  std::string file;                                             // for errors
  std::vector<std::pair<std::string, int32_t>> tokens;          // bytes and ids
  std::vector<std::pair<std::string, int32_t>> special_tokens;  // texts and ids
  bool finds_special_tokens = true;  // in the text; else they cannot come out of encoding
  bool normalizes = false;           // text is brought into NFC first
  std::string pattern;               // in Rust's syntax; cuts text into pieces
  int32_t end_of_document = 0;
};

// Equal to the tiktoken package with allowed_special="all". Throws FileError for a token that is
// there twice, or a byte that is none.
std::unique_ptr<Tokenizer> make_byte_bpe(ByteBpe description);

// Bytes of base64 text. Throws FileError, which names `where`, for other text.
std::string decode_base64(std::string_view text, const std::string& where);

}  // namespace switchyard
