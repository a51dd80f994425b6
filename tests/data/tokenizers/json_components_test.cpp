#include "data/tokenizers/json_components.h"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "data/tokenizers/scratch_folder.h"

namespace switchyard {
namespace {

using nlohmann::json;

template <class Read>
std::string refusal(const char* text, Read&& read) {
  const json content = json::parse(text);
  return message_of<FileError>([&] { read(JsonObject(content, "f.json: part")); });
}

std::string refused_normalizer(const char* text) {
  return refusal(text, [](const JsonObject& part) { read_normalizer(part); });
}
std::string refused_pre_tokenizer(const char* text) {
  return refusal(text, [](const JsonObject& part) { read_pre_tokenizer(part, true); });
}
std::string refused_decoder(const char* text) {
  return refusal(text, [](const JsonObject& part) { read_decoder(part); });
}
std::string refused_post_processor(const char* text) {
  return refusal(text, [](const JsonObject& part) { read_post_processor(part); });
}

TEST(JsonComponents, RefusesKindsThatAreNotImplementedByName) {
  EXPECT_EQ(refused_normalizer(R"({"type": "Precompiled"})"),
            "f.json: part: the normalizer \"Precompiled\" is not implemented; known are: "
            "ByteLevel, Lowercase, NFC, NFD, NFKC, NFKD, Prepend, Replace, Sequence, Strip, "
            "StripAccents");
  EXPECT_EQ(refused_pre_tokenizer(
                R"({"type": "Sequence", "pretokenizers": [{"type": "UnicodeScripts"}]})"),
            "f.json: part: pretokenizers[0]: the pre_tokenizer \"UnicodeScripts\" is not "
            "implemented; known are: ByteLevel, Digits, Metaspace, Punctuation, Sequence, Split, "
            "Whitespace, WhitespaceSplit");
  EXPECT_EQ(refused_decoder(R"({"type": "WordPiece"})"),
            "f.json: part: the decoder \"WordPiece\" is not implemented; known are: ByteFallback, "
            "ByteLevel, Fuse, Metaspace, Replace, Sequence, Strip");
  EXPECT_EQ(refused_post_processor(R"({"type": "Other"})"),
            "f.json: part: the post_processor \"Other\" is not implemented; known are: "
            "BertProcessing, ByteLevel, RobertaProcessing, Sequence, TemplateProcessing");
}

TEST(JsonComponents, RefusesFieldsItCannotUse) {
  EXPECT_EQ(refused_pre_tokenizer(
                R"({"type": "Split", "pattern": {"String": "a"}, "behavior": "Glued"})"),
            "f.json: part: \"behavior\" is \"Glued\"; known are: Removed, Isolated, "
            "MergedWithPrevious, MergedWithNext, Contiguous");
  EXPECT_EQ(refused_pre_tokenizer(R"({"type": "Split", "pattern": {}, "behavior": "Removed"})"),
            "f.json: part: pattern has neither \"String\" nor \"Regex\"");
  EXPECT_EQ(refused_pre_tokenizer(R"({"type": "Metaspace", "replacement": "ab"})"),
            "f.json: part: \"replacement\" is \"ab\", expected one character");
  EXPECT_EQ(refused_pre_tokenizer(R"({"type": "Metaspace", "replacement": "_",
                                      "add_prefix_space": false, "prepend_scheme": "first"})"),
            "f.json: part: \"add_prefix_space\" is false, but \"prepend_scheme\" is \"first\"");
  EXPECT_EQ(refused_decoder(R"({"type": "Strip", "content": " ", "start": -1, "stop": 0})"),
            "f.json: part: \"start\" is -1, below 0");
  EXPECT_EQ(refused_decoder(R"({"type": "Strip", "content": " ", "start": "1", "stop": 0})"),
            "f.json: part: \"start\" is not a whole number");
}

TEST(JsonComponents, RefusesTemplatesItCannotUse) {
  EXPECT_EQ(refused_post_processor(
                R"({"type": "TemplateProcessing", "single": [{"Sequence": {"id": "B"}}]})"),
            "f.json: part: single[0]: only templates with one sequence, A, are implemented");
  EXPECT_EQ(refused_post_processor(R"({"type": "TemplateProcessing", "single": []})"),
            "f.json: part: the template \"single\" has no sequence");
  EXPECT_EQ(refused_post_processor(R"({"type": "BertProcessing", "cls": ["a"], "sep": ["b", 1]})"),
            "f.json: part: \"cls\" is not a text and an id");
  EXPECT_EQ(
      refused_post_processor(R"({"type": "BertProcessing", "cls": ["a", "b"], "sep": ["b", 1]})"),
      "f.json: part: \"b\" is not a token id");
}

TEST(JsonComponents, RefusesSequencesTooDeep) {
  std::string text = R"({"type": "NFC"})";
  std::string where = "f.json: part";
  for (int i = 0; i < 16; ++i) {
    text = R"({"type": "Sequence", "normalizers": [)" + text + "]}";
    where += ": normalizers[0]";
  }
  EXPECT_EQ(refused_normalizer(text.c_str()),
            where + ": sequences inside sequences, more than 16 deep");
}

std::string decode(const char* text, const std::vector<std::string>& tokens) {
  const json content = json::parse(text);
  DecoderSteps steps;
  for (const auto& make : read_decoder(JsonObject(content, "part"))) {
    steps.push_back(make());
  }
  std::vector<std::string> now = tokens;
  for (const auto& step : steps) {
    std::vector<std::string> next;
    for (const std::string& token : now) {
      step->push(token, next);
    }
    step->finish(next);
    now = std::move(next);
  }
  std::string joined;
  for (const std::string& token : now) {
    joined += token;
  }
  return joined;
}

TEST(JsonComponents, StripsTokensOrTheJoinedText) {
  EXPECT_EQ(decode(R"({"type": "Strip", "content": "y", "start": 0, "stop": 1})",
                   {"Hey", " friend!", "yay"}),
            "He friend!ya");
  EXPECT_EQ(decode(R"({"type": "Sequence", "decoders": [{"type": "Fuse"},
                       {"type": "Strip", "content": " ", "start": 2, "stop": 0}]})",
                   {" ", " ", " a", " b"}),
            " a b");
  EXPECT_EQ(decode(R"({"type": "Sequence", "decoders": [{"type": "Fuse"},
                       {"type": "Strip", "content": " ", "start": 0, "stop": 1}]})",
                   {"a ", "b "}),
            "a b");
}

TEST(JsonComponents, JoinsBytesOnlyWhenTheyAreCharacters) {
  const char* decoder = R"({"type": "ByteFallback"})";
  EXPECT_EQ(decode(decoder, {"<0xE5>", "<0x8F>", "<0xab>", "a"}),
            "\u53eb"
            "a");
  EXPECT_EQ(decode(decoder, {"<0xE5>", "<0x8F>", "a"}),
            "\ufffd\ufffd"
            "a");
  EXPECT_EQ(decode(decoder, {"<0xE5>", "<0x8F>"}), "\ufffd\ufffd");
}

}  // namespace
}  // namespace switchyard
