#include "data/tokenizers/sentencepiece_tokenizer.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "data/tokenizers/scratch_folder.h"

namespace switchyard {
namespace {

namespace fs = std::filesystem;
const fs::path kGolden = fs::path(SWITCHYARD_SOURCE_DIR) / "tests/golden/tokenizers";

// A field of a protocol buffer with bytes as its content.
std::string field(int number, const std::string& content) {
  return std::string{static_cast<char>(number << 3 | 2), static_cast<char>(content.size())} +
         content;
}

// A piece with its type; all scores are 0.
std::string piece(const std::string& text, char type) {
  return field(1, field(1, text) + std::string{'\x18', type});
}

class SentencePiece : public testing::Test {
 protected:
  std::unique_ptr<Tokenizer> read(const std::string& bytes) {
    write_text(path_, bytes);
    return read_sentencepiece(path_, "name");
  }
  std::string refusal(const std::string& bytes) {
    const std::string message = message_of<FileError>([&] { read(bytes); });
    return message.starts_with(path_.string()) ? message.substr(path_.string().size()) : message;
  }

  const fs::path folder_ = scratch_folder();
  const fs::path path_ = folder_ / "tokenizer.model";
  const std::string small_ = piece("<unk>", 2) + piece("</s>", 3) + piece("a", 1);
};

TEST_F(SentencePiece, EndsDocumentsWithItsEndPieceUnlessFilesSayOtherwise) {
  EXPECT_EQ(read(small_)->end_of_document(), 1);
  write_text(folder_ / "tokenizer_config.json", R"({"eos_token": "a"})");
  EXPECT_EQ(read(small_)->end_of_document(), 2);
  EXPECT_EQ(read(small_)->vocab_size(), 3);
}

TEST_F(SentencePiece, PutsItsBeginningInFrontIfTheConfigurationSaysSo) {
  const std::string model = small_ + piece("<s>", 3);
  EXPECT_EQ(read(model)->encode_with_special_tokens("a"), read(model)->encode("a"));
  write_text(folder_ / "tokenizer_config.json", R"({"add_bos_token": true})");
  const auto tokenizer = read(model);
  std::vector<int32_t> expected = tokenizer->encode("a");
  expected.insert(expected.begin(), 3);
  EXPECT_EQ(tokenizer->encode_with_special_tokens("a"), expected);
}

TEST_F(SentencePiece, ShowsTextPieceByPiece) {
  const auto tokenizer = make_tokenizer(kGolden / "sentencepiece_bpe");
  const std::string text = "Hello \u65e5 world";
  const auto decoder = tokenizer->stream_decoder();
  std::string joined;
  for (const int32_t id : tokenizer->encode(text)) {
    const size_t before = joined.size();
    decoder->push(id, joined);
    EXPECT_EQ(joined.find("\ufffd", before), std::string::npos);  // bytes wait for their character
  }
  decoder->finish(joined);
  EXPECT_EQ(joined, text);
}

TEST_F(SentencePiece, RefusesIdsOutsideItsVocabulary) {
  const auto tokenizer = read(small_);
  EXPECT_EQ(message_of<ConfigError>([&] { tokenizer->decode(std::vector<int32_t>{3}); }),
            "token id 3 is outside the vocabulary of the tokenizer \"name\" (0 to 2)");
}

TEST_F(SentencePiece, RefusesKindsThatAreNotImplementedByName) {
  const std::string word = field(2, "\x18\x03");
  EXPECT_EQ(refusal(small_ + word),
            ": the model type WORD is not implemented; known are: UNIGRAM, BPE");
  EXPECT_EQ(refusal(small_ + field(2, "\x18\x04")),
            ": the model type CHAR is not implemented; known are: UNIGRAM, BPE");
  EXPECT_EQ(refusal(small_ + field(2, "\x18\x09")), ": the model is of type 9, expected 1 to 4");
  EXPECT_EQ(refusal(small_ + piece("b", 5)),
            ": the piece \"b\" is of type UNUSED, which is not implemented");
  EXPECT_EQ(refusal(small_ + piece("b", 7)), ": the piece \"b\" is of type 7, expected 1 to 6");
  EXPECT_EQ(refusal(small_ + field(5, field(2, "map"))), ": a denormalizer is not implemented");
  EXPECT_EQ(refusal(small_ + piece("ax", 1) + field(2, "\x18\x02")),
            ": the piece \"ax\" has a character that is not a piece, which is not implemented");
}

TEST_F(SentencePiece, RefusesPiecesThatContradictEachOther) {
  EXPECT_EQ(refusal(piece("a", 1)), ": no piece is of type UNKNOWN");
  EXPECT_EQ(refusal(small_ + piece("u", 2)), ": two pieces are of type UNKNOWN");
  EXPECT_EQ(refusal(small_ + piece("", 1)), ": the piece 3 is empty or not UTF-8");
  EXPECT_EQ(refusal(small_ + piece("<0xZZ>", 6)),
            ": the byte piece \"<0xZZ>\" is not <0x00> to <0xFF>");
  EXPECT_EQ(refusal(small_ + field(2, std::string("\x98\x02\x01", 3))),
            ": byte_fallback is on, but not all 256 byte pieces are there");
  EXPECT_EQ(refusal(small_ + field(3, field(2, "no map"))), ": the character map is damaged");
  EXPECT_EQ(refusal(field(3, "")), " is a SentencePiece model without pieces");
}

// Cut off anywhere, or with any byte changed, a file is refused with an error or read, but no more.
TEST_F(SentencePiece, SurvivesDamage) {
  for (const char* name : {"sentencepiece_bpe", "sentencepiece_unigram"}) {
    const std::string whole = read_text(kGolden / name / "tokenizer.model");
    for (size_t size = 0; size < whole.size(); size += 1 + whole.size() / 150) {
      message_of<FileError>([&] { read(whole.substr(0, size))->encode("some text \u00bd"); });
      std::string changed = whole;
      changed[size] = static_cast<char>(changed[size] ^ 0x55);
      message_of<FileError>([&] { read(changed)->encode("some text \u00bd"); });
    }
    EXPECT_EQ(refusal(whole.substr(0, whole.size() - 1)),
              " is not a SentencePiece model, or is damaged or cut off");
  }
}

}  // namespace
}  // namespace switchyard
