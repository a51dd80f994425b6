#include "data/tokenizers/tiktoken_file.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "data/tokenizers/byte_bpe.h"
#include "data/tokenizers/scratch_folder.h"

namespace switchyard {
namespace {

namespace fs = std::filesystem;
const fs::path kGolden = fs::path(SWITCHYARD_SOURCE_DIR) / "tests/golden/tokenizers/tiktoken";

class TiktokenFile : public testing::Test {
 protected:
  std::string refusal() {
    return message_of<FileError>([&] { read_tiktoken(path_, "name"); });
  }

  const fs::path folder_ = scratch_folder();
  const std::string path_ = folder_ / "some.tiktoken";
  const std::string described_ = path_ + ".json";
};

TEST_F(TiktokenFile, RefusesRanksOfWhichItDoesNotKnowThePattern) {
  write_text(path_, read_text(kGolden / "small.tiktoken"));
  EXPECT_EQ(refusal(),
            path_ +
                " holds tokens with their ranks, but not the pattern that cuts text nor the "
                "special tokens, and its name is not that of a known one (r50k_base, p50k_base, "
                "cl100k_base, o200k_base, qwen, qwen3_6): write " +
                described_ + " with \"pattern\", \"special_tokens\" and \"end_of_document\"");
}

TEST_F(TiktokenFile, RefusesAnotherNumberOfTokensThanItsNameSays) {
  for (const char* name : {"cl100k_base", "o200k_base", "qwen", "qwen3_6", "r50k_base"}) {
    const std::string path = folder_ / (std::string(name) + ".tiktoken");
    write_text(path, "YQ== 0\n");
    EXPECT_TRUE(message_of<FileError>([&] {
                  read_tiktoken(path, "name");
                }).starts_with(path + " holds 1 tokens, but its name is that of a tokenizer of "));
  }
  write_text(folder_ / "tokenizer_config.json", R"({"tokenizer_class": "QWenTokenizer"})");
  write_text(path_, "YQ== 0\n");
  EXPECT_EQ(refusal(), path_ +
                           " holds 1 tokens, but its name is that of a tokenizer of 151643: it is "
                           "cut off, or another one, which needs " +
                           described_ + " beside it");
}

TEST_F(TiktokenFile, NamesTheLineThatIsDamaged) {
  write_text(described_, read_text(kGolden / "small.tiktoken.json"));
  write_text(path_, "YQ== 0\n\nYg== x\n");
  EXPECT_EQ(refusal(), path_ + ", line 3: expected a token in base64, a space and its id");
  write_text(path_, "YQ== 0\nY* 1\n");
  EXPECT_EQ(refusal(), path_ + ", line 2: \"Y*\" is not base64");
  write_text(path_, "YQ= 0\n");
  EXPECT_EQ(refusal(), path_ + ", line 1: \"YQ=\" is not base64");
  write_text(path_, " 0\n");
  EXPECT_EQ(refusal(), path_ + ", line 1: expected a token in base64, a space and its id");
  write_text(path_, "==== 0\n");
  EXPECT_EQ(refusal(), path_ + ", line 1: \"====\" is not base64");
  write_text(path_, "\n");
  EXPECT_EQ(refusal(), path_ + " holds no tokens");
}

TEST_F(TiktokenFile, RefusesTokensThatContradictEachOther) {
  write_text(described_, read_text(kGolden / "small.tiktoken.json"));
  write_text(path_, "YQ== 0\nYg== 0\n");
  EXPECT_EQ(refusal(), path_ + ": two tokens have the id 0");
  write_text(path_, "YQ== 0\nYQ== 1\n");
  EXPECT_EQ(refusal(), path_ + ": a token is there twice");
  write_text(path_, "YQ== 0\n");
  EXPECT_EQ(refusal(), path_ + ": no token is the byte 0x00, so that some texts cannot be written");
}

TEST_F(TiktokenFile, RefusesADescriptionItCannotUse) {
  write_text(path_, read_text(kGolden / "small.tiktoken"));
  write_text(described_, R"({"pattern": ".", "special_tokens": {}, "end_of_document": "<e>"})");
  EXPECT_EQ(refusal(), path_ + ": the end of a document is \"<e>\", which is not a special token");
  write_text(described_,
             R"({"pattern": ".", "special_tokens": {"<e>": -1}, "end_of_document": "<e>"})");
  EXPECT_EQ(refusal(),
            described_ + ": special_tokens: the id of \"<e>\" is -1, expected 0 to 268435455");
  write_text(described_, R"({"pattern": ".", "special_tokens": {"<e>": 900},
                             "end_of_document": "<e>", "normalization": "NFD"})");
  EXPECT_EQ(refusal(), described_ + ": \"normalization\" is \"NFD\", expected \"NFC\"");
}

TEST(Tekken, IsReadWithItsSpecialTokensInFront) {
  const fs::path path = scratch_folder() / "tekken.json";
  std::string vocabulary;
  for (int byte = 0; byte < 256; ++byte) {
    constexpr const char* kDigits =
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    vocabulary +=
        fmt::format(R"({}{{"rank": {}, "token_bytes": "{}{}==", "token_str": null}})",
                    byte == 0 ? "" : ",", byte, kDigits[byte >> 2], kDigits[(byte & 3) << 4]);
  }
  const auto write = [&](int size, int num_special) {
    write_text(path, fmt::format(R"({{"config": {{"pattern": "[^a]+|a", "default_vocab_size": {},
        "default_num_special_tokens": {}}}, "vocab": [{}],
        "special_tokens": [{{"rank": 0, "token_str": "<unk>"}}, {{"rank": 1, "token_str": "</s>"}}]}})",
                                 size, num_special, vocabulary));
  };
  write(259, 3);
  const auto tokenizer = read_tekken(path, "name");
  EXPECT_EQ(tokenizer->end_of_document(), 1);
  EXPECT_EQ(tokenizer->vocab_size(), 259);
  EXPECT_EQ(tokenizer->encode("<a"), (std::vector<int32_t>{'<' + 3, 'a' + 3}));
  EXPECT_EQ(tokenizer->decode(std::vector<int32_t>{2, 'a' + 3}, SpecialTokens::kKeep),
            "<SPECIAL_2>a");
  const auto refusal = [&] { return message_of<FileError>([&] { read_tekken(path, "name"); }); };
  write(300, 3);
  EXPECT_EQ(refusal(), path.string() + ": 256 tokens, but config says 297 and 3 special ones");
  write(257, 1);
  EXPECT_EQ(refusal(), path.string() + ": 2 special tokens, more than the 1 of config");
  write(3, 3);
  EXPECT_EQ(refusal(), path.string() + ": config: 3 special tokens of 3 tokens");
}

}  // namespace
}  // namespace switchyard
