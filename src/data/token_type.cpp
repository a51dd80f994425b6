#include "data/token_type.h"

#include <array>

namespace switchyard {
namespace {

struct Row {
  TokenType type;
  int64_t bytes;
  std::string_view name;
};

constexpr std::array kRows = {
    Row{TokenType::kUint8, 1, "uint8"}, Row{TokenType::kInt8, 1, "int8"},
    Row{TokenType::kInt16, 2, "int16"}, Row{TokenType::kInt32, 4, "int32"},
    Row{TokenType::kInt64, 8, "int64"}, Row{TokenType::kUint16, 2, "uint16"},
};

const Row& row_of(TokenType type) {
  for (const Row& row : kRows) {
    if (row.type == type) {
      return row;
    }
  }
  return kRows[0];  // not reached: every value of the enum has a row
}

}  // namespace

int64_t bytes_of(TokenType type) {
  return row_of(type).bytes;
}

std::string_view name_of(TokenType type) {
  return row_of(type).name;
}

int64_t largest_of(TokenType type) {
  const bool is_unsigned = type == TokenType::kUint8 || type == TokenType::kUint16;
  const int64_t bits = 8 * bytes_of(type) - (is_unsigned ? 0 : 1);
  return static_cast<int64_t>((uint64_t{1} << static_cast<uint64_t>(bits)) - 1);
}

std::optional<TokenType> token_type_of_code(uint8_t code) {
  for (const Row& row : kRows) {
    if (static_cast<uint8_t>(row.type) == code) {
      return row.type;
    }
  }
  return std::nullopt;
}

TokenType token_type_for(int64_t vocab_size) {
  return vocab_size < 65500 ? TokenType::kUint16 : TokenType::kInt32;
}

}  // namespace switchyard
