#include "data/document_reader.h"

#include <gtest/gtest.h>

#include "data/byte_tokenizer.h"
#include "data/dataset_files.h"

namespace switchyard {
namespace {

// Cannot be cut anywhere.
class WholeTokenizer : public ByteTokenizer {
 public:
  size_t cut_before(std::string_view /*text*/, size_t /*end*/) const override { return 0; }
};

std::vector<TextChunk> chunks_of(const std::vector<std::string>& files, bool split_lines,
                                 const Tokenizer& tokenizer) {
  DocumentReader reader(files, split_lines, tokenizer);
  std::vector<TextChunk> chunks;
  while (auto chunk = reader.next()) {
    chunks.push_back(std::move(*chunk));
  }
  return chunks;
}

TEST(DocumentReader, CutsLinesAtTheirEndsAndKeepsCount) {
  const std::string folder = fresh_folder();
  std::string text;
  for (int i = 0; i < 30'000; ++i) {
    text += std::string(static_cast<size_t>(i % 200), 'x') + "\n";
  }
  text += "no end";
  const std::vector<std::string> files = {write_file(folder + "a.jsonl", text),
                                          write_file(folder + "b.jsonl", "one\n")};
  const auto chunks = chunks_of(files, false, ByteTokenizer());
  ASSERT_GT(chunks.size(), 3U);
  std::string joined;
  int64_t lines = 1;
  for (size_t i = 0; i + 1 < chunks.size(); ++i) {
    EXPECT_EQ(chunks[i].first_line, lines);
    EXPECT_EQ(*chunks[i].path, files[0]);
    EXPECT_TRUE(chunks[i].text.ends_with('\n') || i + 2 == chunks.size());
    lines += std::count(chunks[i].text.begin(), chunks[i].text.end(), '\n');
    joined += chunks[i].text;
  }
  EXPECT_TRUE(joined == text);
  EXPECT_EQ(chunks[chunks.size() - 2].files_done, 1);
  EXPECT_EQ(chunks.back().text, "one\n");
  EXPECT_EQ(chunks.back().first_line, 1);
  EXPECT_EQ(chunks.back().files_done, 2);
  EXPECT_EQ(chunks.back().bytes_done, static_cast<int64_t>(text.size()) + 4);
}

TEST(DocumentReader, KeepsADocumentWholeUnlessItMayBeCut) {
  const std::string folder = fresh_folder();
  const std::vector<std::string> files = {
      write_file(folder + "a.txt", std::string((3 << 20) + 5, 'x'))};
  const auto whole = chunks_of(files, false, WholeTokenizer());
  ASSERT_EQ(whole.size(), 1U);
  EXPECT_TRUE(whole[0].ends_document);
  EXPECT_EQ(whole[0].text.size(), (3U << 20U) + 5);
  const auto parts = chunks_of(files, false, ByteTokenizer());
  ASSERT_EQ(parts.size(), 4U);
  for (size_t i = 0; i < parts.size(); ++i) {
    EXPECT_EQ(parts[i].ends_document, i == 3);
  }
}

TEST(TextKindOf, GoesByTheNameUnderTheCompression) {
  EXPECT_EQ(text_kind("a.txt", false), TextKind::kDocument);
  EXPECT_EQ(text_kind("a.txt.gz", true), TextKind::kLines);
  EXPECT_EQ(text_kind("a.jsonl.zst", false), TextKind::kJsonLines);
  EXPECT_EQ(text_kind("a.gz", false), std::nullopt);
  EXPECT_EQ(text_kind("a.json", false), std::nullopt);
}

}  // namespace
}  // namespace switchyard
