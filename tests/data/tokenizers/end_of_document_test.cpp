#include "data/tokenizers/end_of_document.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "data/tokenizers/scratch_folder.h"

namespace switchyard {
namespace {

class EndOfDocument : public testing::Test {
 protected:
  void write(const char* name, const std::string& text) { write_text(folder_ / name, text); }

  int32_t find(std::optional<int32_t> otherwise = std::nullopt) {
    return find_end_of_document(
        file_, 100, [](std::string_view token) { return token == "</s>" ? 2 : -1; }, otherwise);
  }

  const std::filesystem::path folder_ = scratch_folder();
  const std::string file_ = folder_ / "tokenizer.json";
};

TEST_F(EndOfDocument, IsTheTokenOfTheTokenizersConfiguration) {
  write("config.json", R"({"eos_token_id": 7})");
  write("tokenizer_config.json", R"({"eos_token": "</s>"})");
  EXPECT_EQ(find(), 2);
  write("tokenizer_config.json", R"({"eos_token": {"content": "</s>", "special": true}})");
  EXPECT_EQ(find(), 2);
}

TEST_F(EndOfDocument, ElseIsTheIdOfTheModelsConfigurations) {
  write("tokenizer_config.json", R"({"eos_token": null})");
  write("config.json", R"({"eos_token_id": 7})");
  EXPECT_EQ(find(), 7);
  write("generation_config.json", R"({"eos_token_id": [8, 9]})");
  EXPECT_EQ(find(5), 8);
}

TEST_F(EndOfDocument, ElseIsWhatTheTokenizerSaysItself) {
  EXPECT_EQ(find(5), 5);
}

TEST_F(EndOfDocument, IsRefusedWhenTheTokenizerLacksIt) {
  write("tokenizer_config.json", R"({"eos_token": "<end>"})");
  EXPECT_EQ(message_of<FileError>([&] { find(5); }),
            (folder_ / "tokenizer_config.json").string() +
                ": eos_token is \"<end>\", which is not a token of " + file_);
  write("tokenizer_config.json", "{}");
  write("config.json", R"({"eos_token_id": 100})");
  EXPECT_EQ(message_of<FileError>([&] { find(5); }),
            (folder_ / "config.json").string() +
                ": eos_token_id is 100, outside the vocabulary of " + file_ + " (0 to 99)");
  write("config.json", R"({"eos_token_id": "x"})");
  EXPECT_EQ(message_of<FileError>([&] { find(5); }),
            (folder_ / "config.json").string() + ": \"eos_token_id\" is not a token id");
}

TEST_F(EndOfDocument, IsRefusedWhenNothingSaysIt) {
  EXPECT_EQ(message_of<FileError>([&] { find(); }),
            file_ +
                ": nothing says which token ends a document: tokenizer_config.json beside it has "
                "no eos_token, generation_config.json and config.json no eos_token_id; write a "
                "tokenizer_config.json with {\"eos_token\": \"...\"}");
}

}  // namespace
}  // namespace switchyard
