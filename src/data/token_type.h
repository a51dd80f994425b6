#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace switchyard {

// How a .bin file stores a token; the values are the codes of Megatron's .idx header. Its codes 6
// and 7 are floating point numbers, which are no tokens.
enum class TokenType : uint8_t {
  kUint8 = 1,
  kInt8 = 2,
  kInt16 = 3,
  kInt32 = 4,
  kInt64 = 5,
  kUint16 = 8,
};

int64_t bytes_of(TokenType type);
std::string_view name_of(TokenType type);  // "uint16"
int64_t largest_of(TokenType type);        // the largest id that it holds
std::optional<TokenType> token_type_of_code(uint8_t code);

// The type that Megatron writes for a vocabulary of this size: uint16 below 65500, else int32.
TokenType token_type_for(int64_t vocab_size);

}  // namespace switchyard
