#include "data/byte_tokenizer.h"

#include <gtest/gtest.h>

#include "base/error.h"

namespace switchyard {
namespace {

TEST(ByteTokenizer, GivesEachByteItsValue) {
  const ByteTokenizer tokenizer;
  EXPECT_EQ(tokenizer.encode("A\n\xff"), (std::vector<int32_t>{65, 10, 255}));
  EXPECT_EQ(tokenizer.vocab_size(), 257);
  EXPECT_EQ(tokenizer.end_of_document(), 256);
  EXPECT_TRUE(tokenizer.encode("").empty());
}

TEST(ByteTokenizer, GivesAnyBytesBack) {
  const ByteTokenizer tokenizer;
  std::string bytes;
  for (int byte = 0; byte < 256; ++byte) {
    bytes.push_back(static_cast<char>(byte));
  }
  EXPECT_EQ(tokenizer.decode(tokenizer.encode(bytes)), bytes);
}

TEST(ByteTokenizer, DecodesPieceByPieceToTheSameText) {
  const ByteTokenizer tokenizer;
  const std::string text = "na\u00efve \u20ac";  // two- and three-byte characters
  std::string joined;
  for (const int32_t id : tokenizer.encode(text)) {
    joined += tokenizer.decode({&id, 1});
  }
  EXPECT_EQ(joined, text);
}

TEST(ByteTokenizer, HasNoTextForTheEndOfADocument) {
  const std::vector<int32_t> ids = {104, 105, 256};
  EXPECT_EQ(ByteTokenizer().decode(ids), "hi");
}

TEST(ByteTokenizer, RefusesIdsOutsideItsVocabulary) {
  for (const int32_t id : {257, -1}) {
    try {
      ByteTokenizer().decode({&id, 1});
      FAIL();
    } catch (const ConfigError& error) {
      EXPECT_EQ(error.what(), fmt::format("token id {} is outside the vocabulary of the tokenizer "
                                          "\"bytes\" (0 to 256)",
                                          id));
    }
  }
}

// Files carry it: a change would make every data set of old refuse to load.
TEST(ByteTokenizer, KeepsItsFingerprint) {
  EXPECT_EQ(ByteTokenizer().fingerprint(), 0x50fef12e046d7d5eU);
}

}  // namespace
}  // namespace switchyard
