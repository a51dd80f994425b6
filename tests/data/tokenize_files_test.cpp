#include "data/tokenize_files.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "data/byte_tokenizer.h"
#include "data/dataset_files.h"
#include "data/indexed_dataset.h"

namespace switchyard {
namespace {

DatasetSidecar tokenize(const std::vector<std::string>& files, const std::string& prefix,
                        bool overwrite = false) {
  return tokenize_files(files, ByteTokenizer(), prefix, overwrite, [](const TokenizeProgress&) {});
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
  tokenize_files({write_file(folder + "a.txt", "abc"), write_file(folder + "b.txt", "de")},
                 ByteTokenizer(), folder + "set", false,
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
  const std::string lines = write_file(folder + "lines.jsonl", "{}");
  std::filesystem::create_directory(folder + "folder.txt");
  const auto error = [&](const std::string& path) {
    return error_of<FileError>([&] { tokenize({good, path}, folder + "set"); });
  };
  const std::string kind =
      " is not a .txt file, the only kind that is read; each becomes one document";
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
            "no files to tokenize; name at least one .txt file");
}

}  // namespace
}  // namespace switchyard
