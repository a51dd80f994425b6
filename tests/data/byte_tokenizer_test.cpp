#include "data/byte_tokenizer.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "data/dataset_files.h"

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

// Written for transformers, its files give the same ids and, as they are, are `bytes` again.
TEST(ByteTokenizer, GivesFilesThatMeanTheSame) {
  const std::string folder = fresh_folder();
  for (const auto& [name, content] : byte_tokenizer_files()) {
    write_file(folder + name, content);
  }
  EXPECT_EQ(make_tokenizer(folder)->fingerprint(), ByteTokenizer().fingerprint());
  write_file(folder + "tokenizer.json", byte_tokenizer_files().at("tokenizer.json") + " ");
  const auto read = make_tokenizer(folder);
  EXPECT_NE(read->fingerprint(), ByteTokenizer().fingerprint());
  EXPECT_EQ(read->vocab_size(), 257);
  EXPECT_EQ(read->end_of_document(), 256);
  const std::string text = "na\u00efve  \u20ac\n\tIt's \U0001f600 0\x01\x7f";
  EXPECT_EQ(read->encode(text), ByteTokenizer().encode(text));
  EXPECT_EQ(read->decode(read->encode(text)), text);
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
