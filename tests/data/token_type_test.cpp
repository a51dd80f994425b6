#include "data/token_type.h"

#include <gtest/gtest.h>

namespace switchyard {
namespace {

// megatron-core 0.16.1, class DType: uint8 1, int8 2, int16 3, int32 4, int64 5, float64 6,
// float32 7, uint16 8.
TEST(TokenType, HasTheCodesOfMegatron) {
  const std::vector<std::tuple<uint8_t, const char*, int64_t>> known = {
      {1, "uint8", 1}, {2, "int8", 1},  {3, "int16", 2},
      {4, "int32", 4}, {5, "int64", 8}, {8, "uint16", 2}};
  for (const auto& [code, name, bytes] : known) {
    ASSERT_TRUE(token_type_of_code(code).has_value());
    EXPECT_EQ(name_of(*token_type_of_code(code)), name);
    EXPECT_EQ(bytes_of(*token_type_of_code(code)), bytes);
  }
  for (const uint8_t code : std::vector<uint8_t>{0, 6, 7, 9, 255}) {
    EXPECT_FALSE(token_type_of_code(code).has_value());
  }
}

// The same: DType.optimal_dtype.
TEST(TokenType, IsChosenByTheVocabularyAsMegatronDoes) {
  EXPECT_EQ(token_type_for(257), TokenType::kUint16);
  EXPECT_EQ(token_type_for(65499), TokenType::kUint16);
  EXPECT_EQ(token_type_for(65500), TokenType::kInt32);
  EXPECT_EQ(token_type_for(151936), TokenType::kInt32);
}

TEST(TokenTypes, HoldIdsUpToALargest) {
  EXPECT_EQ(largest_of(TokenType::kUint8), 255);
  EXPECT_EQ(largest_of(TokenType::kInt16), 32767);
  EXPECT_EQ(largest_of(TokenType::kUint16), 65535);
  EXPECT_EQ(largest_of(TokenType::kInt32), 2147483647);
  EXPECT_EQ(largest_of(TokenType::kInt64), std::numeric_limits<int64_t>::max());
}

}  // namespace
}  // namespace switchyard
