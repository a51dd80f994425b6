#include "data/tokenize_files.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "data/byte_tokenizer.h"
#include "data/dataset_files.h"
#include "data/indexed_dataset.h"

namespace switchyard {
namespace {

DatasetSidecar tokenize(const std::vector<std::string>& files, const std::string& prefix,
                        bool overwrite = false) {
  TokenizeOptions options;
  options.prefix = prefix;
  options.overwrite = overwrite;
  return tokenize_files(files, ByteTokenizer(), options, [](const TokenizeProgress&) {}).sidecar;
}

TEST(TokenizeFiles, MakesEachFileADocumentThatEnds) {
  const std::string folder = fresh_folder();
  const auto sidecar = tokenize(
      {write_file(folder + "b.txt", "hi"), write_file(folder + "a.txt", "\n")}, folder + "out/set");
  EXPECT_EQ(sidecar.num_documents, 2);
  EXPECT_EQ(sidecar.num_tokens, 5);
  const IndexedDataset set(folder + "out/set");
  set.verify_checksum();
  std::vector<int64_t> tokens(5);
  set.read(0, tokens);
  EXPECT_EQ(tokens, (std::vector<int64_t>{'h', 'i', 256, '\n', 256}));
}

TEST(TokenizeFiles, ReportsProgressAfterEachFile) {
  const std::string folder = fresh_folder();
  std::vector<TokenizeProgress> reports;
  TokenizeOptions options;
  options.prefix = folder + "set";
  tokenize_files({write_file(folder + "a.txt", "abc"), write_file(folder + "b.txt", "de")},
                 ByteTokenizer(), options,
                 [&](const TokenizeProgress& progress) { reports.push_back(progress); });
  ASSERT_EQ(reports.size(), 2U);
  EXPECT_EQ(reports[0].files_done, 1);
  EXPECT_EQ(reports[0].num_files, 2);
  EXPECT_EQ(reports[0].bytes_done, 3);
  EXPECT_EQ(reports[0].num_bytes, 5);
  EXPECT_EQ(reports[1].bytes_done, 5);
  EXPECT_EQ(reports[1].tokens, 7);
}

TEST(TokenizeFiles, RefusesFilesThatAreNoDocument) {
  const std::string folder = fresh_folder();
  const std::string good = write_file(folder + "good.txt", "text");
  const std::string empty = write_file(folder + "empty.txt", "");
  const std::string lines = write_file(folder + "lines.json", "{}");
  std::filesystem::create_directory(folder + "folder.txt");
  const auto error = [&](const std::string& path) {
    return error_of<FileError>([&] { tokenize({good, path}, folder + "set"); });
  };
  const std::string kind =
      " is not a text file that can be read: .txt or .jsonl, or one of these with .gz or .zst "
      "after "
      "it";
  EXPECT_EQ(error(empty), empty + " is empty, and a document needs text; leave the file out");
  EXPECT_EQ(error(lines), lines + kind);
  EXPECT_EQ(error(folder + "folder.txt"), folder + "folder.txt" + kind);
  EXPECT_EQ(error(folder + "missing.txt"), folder + "missing.txt: no such file");
  EXPECT_FALSE(std::filesystem::exists(folder + "set.bin"));
  EXPECT_FALSE(std::filesystem::exists(folder + "set.bin.partial"));
}

TEST(TokenizeFiles, ReplacesADataSetOnlyWhenAsked) {
  const std::string folder = fresh_folder();
  const std::string text = write_file(folder + "a.txt", "abc");
  tokenize({text}, folder + "set");
  const auto again = [&] { tokenize({text, text}, folder + "set"); };
  EXPECT_EQ(error_of<FileError>(again), folder +
                                            "set.bin is there already; choose another --out, "
                                            "or pass --force to replace the data set");
  std::filesystem::remove(folder + "set.bin");
  EXPECT_EQ(error_of<FileError>(again), folder +
                                            "set.idx is there already; choose another --out, "
                                            "or pass --force to replace the data set");
  tokenize({text, text}, folder + "set", /*overwrite=*/true);
  EXPECT_EQ(IndexedDataset(folder + "set").num_documents(), 2);
}

TEST(TokenizeFiles, RefusesAPrefixThatNamesNoFile) {
  const std::string folder = fresh_folder();
  for (const std::string& prefix : {folder, std::string(), folder.substr(0, folder.size() - 1)}) {
    EXPECT_EQ(error_of<ConfigError>([&] { tokenize({"a.txt"}, prefix); }),
              "--out is \"" + prefix + "\", expected a prefix for three files, as in data/train");
  }
  EXPECT_EQ(error_of<ConfigError>([&] { tokenize({}, folder + "set"); }),
            "no files to tokenize; name at least one .txt or .jsonl file");
}

// All tokens of a data set, documents in brackets of -1.
std::vector<int64_t> documents_of(const std::string& prefix) {
  const IndexedDataset set(prefix);
  set.verify_checksum();
  std::vector<int64_t> all;
  for (int64_t i = 0; i < set.num_documents(); ++i) {
    std::vector<int64_t> tokens(
        static_cast<size_t>(set.document_start(i + 1) - set.document_start(i)));
    set.read(set.document_start(i), tokens);
    all.push_back(-1);
    all.insert(all.end(), tokens.begin(), tokens.end());
  }
  return all;
}

TokenizeResult tokenize_with(const std::vector<std::string>& files, TokenizeOptions options) {
  options.overwrite = true;
  return tokenize_files(files, ByteTokenizer(), options, [](const TokenizeProgress&) {});
}

TEST(TokenizeFiles, MakesEachLineOfJsonADocument) {
  const std::string folder = fresh_folder();
  const std::string file = write_file(folder + "a.jsonl",
                                      "{\"id\": 1, \"text\": \"a\"}\n"
                                      "\n"
                                      "{\"text\":\"\\u00e4\\n\",\"meta\":{\"text\":\"no\"}}\r\n"
                                      "{\"text\":\"\"}\n"
                                      "{\"other\":\"x\",\"text\":\"z\"}");
  const auto made = tokenize_with({file}, {.prefix = folder + "set"});
  EXPECT_EQ(documents_of(folder + "set"),
            (std::vector<int64_t>{-1, 'a', 256, -1, 0xc3, 0xa4, '\n', 256, -1, 'z', 256}));
  EXPECT_EQ(made.totals.empty_documents, 1);
  EXPECT_EQ(made.totals.bad_lines, 0);
}

TEST(TokenizeFiles, NamesTheLineThatHoldsNoTextOrCountsIt) {
  const std::string folder = fresh_folder();
  const std::string file = write_file(folder + "a.jsonl",
                                      "{\"text\":\"a\"}\n\n{\"text\":\"b\"\n{\"text\":3}\n"
                                      "{\"body\":\"c\"}\n");
  EXPECT_EQ(error_of<FileError>([&] { tokenize({file}, folder + "set"); }),
            file +
                ":3: the line is not JSON (byte 12); mend it, name another --key, or pass "
                "--skip-bad-lines to leave such lines out");
  EXPECT_FALSE(std::filesystem::exists(folder + "set.idx"));
  const auto skipped = tokenize_with({file}, {.prefix = folder + "set", .skip_bad_lines = true});
  EXPECT_EQ(skipped.totals.bad_lines, 3);
  EXPECT_EQ(skipped.sidecar.num_documents, 1);
  const auto other =
      tokenize_with({file}, {.prefix = folder + "set", .key = "body", .skip_bad_lines = true});
  EXPECT_EQ(other.totals.bad_lines, 3);
  EXPECT_EQ(documents_of(folder + "set"), (std::vector<int64_t>{-1, 'c', 256}));
}

TEST(TokenizeFiles, RefusesFilesWithoutADocument) {
  const std::string folder = fresh_folder();
  const std::string file = write_file(folder + "a.jsonl", "\n  \n{\"text\":\"\"}\n");
  EXPECT_EQ(
      error_of<FileError>([&] { tokenize({file}, folder + "set"); }),
      "no document is in " + file + ": 0 lines without a text and 1 empty ones were left out");
  EXPECT_EQ(count_files(folder), 1);
}

TEST(TokenizeFiles, SplitsLinesAndLeavesTheEndOutWhenAsked) {
  const std::string folder = fresh_folder();
  const std::string file = write_file(folder + "a.txt", "a\n\nbc\r\nd");
  TokenizeOptions options{.prefix = folder + "set", .split_lines = true};
  tokenize_with({file}, options);
  EXPECT_EQ(documents_of(folder + "set"),
            (std::vector<int64_t>{-1, 'a', 256, -1, 'b', 'c', 256, -1, 'd', 256}));
  options.end_of_document = TokenizeOptions::kNoEnd;
  EXPECT_EQ(tokenize_with({file}, options).sidecar.end_of_document, -1);
  EXPECT_EQ(documents_of(folder + "set"), (std::vector<int64_t>{-1, 'a', -1, 'b', 'c', -1, 'd'}));
  options.end_of_document = 7;
  tokenize_with({file}, options);
  EXPECT_EQ(documents_of(folder + "set"),
            (std::vector<int64_t>{-1, 'a', 7, -1, 'b', 'c', 7, -1, 'd', 7}));
}

TEST(TokenizeFiles, RefusesAnEndThatTheTokenizerLacksAndATypeThatIsTooSmall) {
  const std::string folder = fresh_folder();
  const std::string file = write_file(folder + "a.txt", "a");
  EXPECT_EQ(error_of<ConfigError>(
                [&] { tokenize_with({file}, {.prefix = folder + "set", .end_of_document = 257}); }),
            "the end of document is 257, an id that the tokenizer bytes lacks: its ids are 0 to "
            "256");
  class Large : public ByteTokenizer {
   public:
    int64_t vocab_size() const override { return 65537; }
  };
  const TokenizeOptions options{.prefix = folder + "set", .token_type = TokenType::kUint16};
  EXPECT_EQ(error_of<ConfigError>(
                [&] { tokenize_files({file}, Large(), options, [](const TokenizeProgress&) {}); }),
            "the token type uint16 holds ids up to 65535, too small for the 65537 tokens of bytes; "
            "take int32");
  EXPECT_EQ(count_files(folder), 1);
}

// Lines and documents of every length around the size of a chunk.
TEST(TokenizeFiles, GivesTheSameFilesForAnyNumberOfThreads) {
  const std::string folder = fresh_folder();
  std::string lines;
  for (int64_t i = 0; i < 40'000; ++i) {
    lines += fmt::format("{{\"text\": \"line {} {}\"}}\n", i, std::string(i % 300, 'x'));
  }
  lines += "{\"text\": \"" + std::string(3 << 20, 'y') + "\"}\n{\"text\": \"end\"}";
  const std::vector<std::string> files = {
      write_file(folder + "a.jsonl", lines),
      write_file(folder + "long.txt", std::string((5 << 20) + 17, 'z')),
      write_file(folder + "b.txt", "short")};
  std::string expected;
  for (const int64_t threads : {1, 2, 7}) {
    tokenize_with(files, {.prefix = folder + "set", .num_threads = threads});
    const std::string bytes = read_file(folder + "set.bin") + read_file(folder + "set.idx") +
                              read_file(folder + "set.json");
    EXPECT_TRUE(expected.empty() || bytes == expected) << threads;
    expected = bytes;
  }
  const IndexedDataset set(folder + "set");
  EXPECT_EQ(set.num_documents(), 40'000 + 2 + 2);
  EXPECT_EQ(set.document_start(40'003) - set.document_start(40'002), (5 << 20) + 17 + 1);
}

}  // namespace
}  // namespace switchyard
