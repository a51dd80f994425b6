#include "data/tokenizers/tokenizer_json.h"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "data/tokenizers/scratch_folder.h"

namespace switchyard {
namespace {

using nlohmann::json;

json small_bpe() {
  return json::parse(R"({
    "version": "1.0",
    "added_tokens": [{"id": 3, "content": "</s>", "special": true, "normalized": false,
                      "single_word": false, "lstrip": false, "rstrip": false}],
    "normalizer": null, "pre_tokenizer": null, "post_processor": null, "decoder": null,
    "model": {"type": "BPE", "vocab": {"a": 0, "b": 1, "ab": 2}, "merges": ["a b"]}
  })");
}

class TokenizerJson : public testing::Test {
 protected:
  void SetUp() override {
    write_text(folder_ / "tokenizer_config.json", R"({"eos_token": "</s>"})");
  }

  std::unique_ptr<Tokenizer> read(const json& content) {
    write_text(path_, content.dump());
    return read_tokenizer_json(path_, "name");
  }

  // The refusal, without the path of the file.
  std::string refusal(const json& content) {
    const std::string message = message_of<FileError>([&] { read(content); });
    return message.starts_with(path_.string()) ? message.substr(path_.string().size()) : message;
  }

  const std::filesystem::path folder_ = scratch_folder();
  const std::filesystem::path path_ = folder_ / "tokenizer.json";
};

TEST_F(TokenizerJson, ReadsWhatIsNeeded) {
  const auto tokenizer = read(small_bpe());
  EXPECT_EQ(tokenizer->encode("abba</s>"), (std::vector<int32_t>{2, 1, 0, 3}));
  EXPECT_EQ(tokenizer->vocab_size(), 4);
  EXPECT_EQ(tokenizer->end_of_document(), 3);
  EXPECT_EQ(tokenizer->decode(std::vector<int32_t>{2, 1, 3}), "ab b");
  EXPECT_EQ(tokenizer->decode(std::vector<int32_t>{2, 1, 3}, SpecialTokens::kKeep), "ab b </s>");
}

TEST_F(TokenizerJson, ReadsMergesInBothSpellingsAlike) {
  json pairs = small_bpe();
  pairs["model"]["merges"] = json::parse(R"([["a", "b"]])");
  EXPECT_EQ(read(pairs)->fingerprint(), read(small_bpe())->fingerprint());
}

TEST_F(TokenizerJson, HasAnotherFingerprintWhenIdsMayDiffer) {
  const uint64_t fingerprint = read(small_bpe())->fingerprint();
  json other = small_bpe();
  other["model"]["ignore_merges"] = true;
  EXPECT_NE(read(other)->fingerprint(), fingerprint);
  other = small_bpe();
  other["added_tokens"][0]["rstrip"] = true;
  EXPECT_NE(read(other)->fingerprint(), fingerprint);
  other = small_bpe();
  other["normalizer"] = {{"type", "NFC"}};
  EXPECT_NE(read(other)->fingerprint(), fingerprint);
  other = small_bpe();
  other["model"]["merges"] = json::array();
  EXPECT_NE(read(other)->fingerprint(), fingerprint);
  write_text(folder_ / "tokenizer_config.json", R"({"eos_token": "a"})");
  EXPECT_NE(read(small_bpe())->fingerprint(), fingerprint);
}

TEST_F(TokenizerJson, RefusesIdsOutsideItsVocabulary) {
  const auto tokenizer = read(small_bpe());
  EXPECT_EQ(message_of<ConfigError>([&] { tokenizer->decode(std::vector<int32_t>{4}); }),
            "token id 4 is outside the vocabulary of the tokenizer \"name\" (0 to 3)");
}

TEST_F(TokenizerJson, RefusesOtherModelsByName) {
  json content = small_bpe();
  content["model"]["type"] = "WordPiece";
  EXPECT_EQ(refusal(content),
            ": model: the model \"WordPiece\" is not implemented; known are: BPE, Unigram");
  content = small_bpe();
  content["model"]["dropout"] = 0.1;
  EXPECT_EQ(refusal(content),
            ": model: \"dropout\" is 0.1: ids drawn at random are not implemented");
  content = small_bpe();
  content["model"]["end_of_word_suffix"] = "</w>";
  EXPECT_EQ(refusal(content),
            ": model: \"end_of_word_suffix\" is \"</w>\", which is not implemented");
  content = small_bpe();
  content["version"] = "2.0";
  EXPECT_EQ(refusal(content), ": version is \"2.0\", this program reads 1.0");
}

TEST_F(TokenizerJson, RefusesAVocabularyThatContradictsItself) {
  json content = small_bpe();
  content["model"]["vocab"]["ab"] = 0;
  EXPECT_EQ(refusal(content), ": model: vocab: two tokens have the id 0");
  content = small_bpe();
  content["model"]["vocab"]["ab"] = -1;
  EXPECT_EQ(refusal(content), ": model: vocab: the id of \"ab\" is -1, expected 0 to 268435455");
  content = small_bpe();
  content["model"]["vocab"][""] = 7;
  EXPECT_EQ(refusal(content), ": model: vocab: the token with the id 7 is empty");
  content = small_bpe();
  content["model"]["vocab"] = json::object();
  EXPECT_EQ(refusal(content), ": model: vocab is empty");
  content = small_bpe();
  content["model"]["merges"] = {"a x"};
  EXPECT_EQ(refusal(content), ": model: merges[0]: \"x\" is not in the vocabulary");
  content = small_bpe();
  content["model"]["merges"] = {"a b c"};
  EXPECT_EQ(refusal(content),
            ": model: merges[0] is \"a b c\", expected two tokens with a space between");
  content = small_bpe();
  content["model"]["merges"] = json::parse(R"([["a"]])");
  EXPECT_EQ(refusal(content), ": model: merges[0] is not a pair of tokens");
  content = small_bpe();
  content["model"]["unk_token"] = "<unk>";
  EXPECT_EQ(refusal(content),
            ": model: \"unk_token\" is \"<unk>\", which is not in the vocabulary");
}

TEST_F(TokenizerJson, RefusesAnAddedTokenWithAnIdOfItsOwn) {
  json content = small_bpe();
  content["added_tokens"][0]["id"] = 5;
  EXPECT_EQ(refusal(content),
            ": added_tokens[0]: \"</s>\" has the id 5, but the tokenizers package would give it 3: "
            "ids of added tokens follow each other without a gap");
}

TEST_F(TokenizerJson, RefusesABadUnigramModel) {
  json content = small_bpe();
  content["model"] = json::parse(R"({"type": "Unigram", "unk_id": 2, "vocab": [["a", -1.0]]})");
  EXPECT_EQ(refusal(content), ": model: \"unk_id\" is 2, outside the vocabulary of 1");
  content["model"]["vocab"][0] = "a";
  EXPECT_EQ(refusal(content), ": model: vocab[0] is not a token with its score");
  content["model"]["vocab"] = json::array();
  EXPECT_EQ(refusal(content), ": model: \"vocab\" is empty");
  content["model"]["vocab"] = json::parse(R"([["", -1.0]])");
  EXPECT_EQ(refusal(content), ": model: vocab[0] is empty");
}

TEST_F(TokenizerJson, RefusesFieldsThatAreMissingOrOfAnotherKind) {
  json content = small_bpe();
  content.erase("model");
  EXPECT_EQ(refusal(content), ": \"model\" is missing");
  content = small_bpe();
  content["model"] = 3;
  EXPECT_EQ(refusal(content), ": model is not a JSON object");
  content = small_bpe();
  content["model"]["merges"] = 3;
  EXPECT_EQ(refusal(content), ": model: \"merges\" is not a list");
  content = small_bpe();
  content["model"]["fuse_unk"] = 3;
  EXPECT_EQ(refusal(content), ": model: \"fuse_unk\" is neither true nor false");
  content = small_bpe();
  content["added_tokens"][0]["content"] = 3;
  EXPECT_EQ(refusal(content), ": added_tokens[0]: \"content\" is not a text");
  content = small_bpe();
  content["post_processor"] =
      json::parse(R"({"type": "BertProcessing", "sep": ["</s>", 9], "cls": ["</s>", 3]})");
  EXPECT_EQ(refusal(content), ": post_processor: the id 9 is outside the vocabulary of 4");
}

TEST_F(TokenizerJson, SaysWhereAFileIsNotJson) {
  write_text(path_, "{\"model\": }");
  EXPECT_EQ(message_of<FileError>([&] { read_tokenizer_json(path_, "name"); }),
            path_.string() + " is not JSON: unexpected text at byte 11 of 11");
}

// Cut off anywhere, or with any byte changed, a file is refused with an error or read, but no more.
TEST_F(TokenizerJson, SurvivesDamage) {
  const auto golden = std::filesystem::path(SWITCHYARD_SOURCE_DIR) / "tests/golden/tokenizers";
  for (const char* name : {"llama2", "odd_splits", "unigram"}) {
    const std::string whole = read_text(golden / name / "tokenizer.json");
    const size_t step = whole.size() / 60;
    for (size_t size = 0; size < whole.size(); size += step) {
      write_text(path_, whole.substr(0, size));
      EXPECT_NE(message_of<FileError>([&] { read_tokenizer_json(path_, "name"); }), "") << size;
      std::string changed = whole;
      changed[size] = static_cast<char>(changed[size] ^ 5);
      write_text(path_, changed);
      message_of<FileError>([&] { read_tokenizer_json(path_, "name")->encode("some text"); });
    }
  }
}

}  // namespace
}  // namespace switchyard
