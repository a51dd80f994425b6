#include "data/indexed_dataset_writer.h"

#include <gtest/gtest.h>

#include "base/crc32c.h"
#include "base/error.h"
#include "data/byte_tokenizer.h"
#include "data/dataset_files.h"
#include "data/indexed_dataset.h"

namespace switchyard {
namespace {

std::string hex_of(const std::string& bytes) {
  std::string digits;
  for (const char byte : bytes) {
    digits += fmt::format("{:02x}", static_cast<unsigned char>(byte));
  }
  return digits;
}

// Bytes, with a vocabulary too large for two bytes.
class WideTokenizer : public ByteTokenizer {
 public:
  int64_t vocab_size() const override { return 70'000; }
};

void write_hamlet(const std::string& prefix, const Tokenizer& tokenizer) {
  IndexedDatasetWriter writer(prefix, tokenizer);
  for (const char* text : {"To be", "\xff", "or not"}) {
    auto ids = tokenizer.encode(text);
    ids.push_back(tokenizer.end_of_document());
    writer.add_document(ids);
  }
  writer.finish();
}

// The expected bytes were written by megatron-core 0.16.1: IndexedDatasetBuilder(path,
// dtype=DType.optimal_dtype(vocab)), for each document add_document(torch.tensor(ids), [len(ids)]),
// then finalize.
TEST(IndexedDatasetWriter, WritesWhatMegatronWrites) {
  const std::string prefix = fresh_folder() + "set";
  write_hamlet(prefix, ByteTokenizer());
  EXPECT_EQ(hex_of(read_file(prefix + ".bin")),
            "54006f002000620065000001ff0000016f00720020006e006f0074000001");
  EXPECT_EQ(
      hex_of(read_file(prefix + ".idx")),
      "4d4d49444944580000010000000000000008030000000000000004000000000000000600000002000000070"
      "0000000000000000000000c0000000000000010000000000000000000000000000000010000000000000002"
      "000000000000000300000000000000");
}

TEST(IndexedDatasetWriter, WritesFourBytesForALargeVocabularyAsMegatronDoes) {
  const std::string prefix = fresh_folder() + "set";
  write_hamlet(prefix, WideTokenizer());
  EXPECT_EQ(hex_of(read_file(prefix + ".bin")),
            "540000006f00000020000000620000006500000000010000ff000000000100006f00000072000000200000"
            "006e0000006f0000007400000000010000");
  EXPECT_EQ(
      hex_of(read_file(prefix + ".idx")),
      "4d4d49444944580000010000000000000004030000000000000004000000000000000600000002000000070"
      "000000000000000000000180000000000000020000000000000000000000000000000010000000000000002"
      "000000000000000300000000000000");
}

TEST(IndexedDatasetWriter, ReadsBackWhatItWrote) {
  const std::string prefix = fresh_folder() + "new/folders/set";
  write_dataset(prefix, {{5, 6, 256}, {256}, {7, 256}});
  const IndexedDataset set(prefix);
  EXPECT_EQ(set.num_documents(), 3);
  EXPECT_EQ(set.document_start(2), 4);
  std::vector<int64_t> tokens(6);
  set.read(0, tokens);
  EXPECT_EQ(tokens, (std::vector<int64_t>{5, 6, 256, 256, 7, 256}));
  const std::string bin = read_file(prefix + ".bin");
  const std::string idx = read_file(prefix + ".idx");
  EXPECT_EQ(*set.sidecar(),
            (DatasetSidecar{"bytes", ByteTokenizer().fingerprint(), 257, 256, 3, 6,
                            crc32c(bin.data(), bin.size()), crc32c(idx.data(), idx.size())}));
}

TEST(IndexedDatasetWriter, LeavesNothingBehindWhenItDoesNotFinish) {
  const std::string folder = fresh_folder();
  {
    IndexedDatasetWriter writer(folder + "set", ByteTokenizer());
    writer.add_document(std::vector<int32_t>{1, 2, 256});
  }
  EXPECT_EQ(count_files(folder), 0);
  write_dataset(folder + "set", {{1, 256}});
  const std::string before = read_file(folder + "set.bin");
  {
    IndexedDatasetWriter writer(folder + "set", ByteTokenizer());
    writer.add_document(std::vector<int32_t>{1, 2, 256});
  }
  EXPECT_EQ(count_files(folder), 3);
  EXPECT_EQ(read_file(folder + "set.bin"), before);
}

// Every write to /dev/full ends as on a full disk.
TEST(IndexedDatasetWriter, NamesTheFileThatDidNotFitOnTheDisk) {
  for (const char* suffix : {".bin", ".idx", ".json"}) {
    const std::string folder = fresh_folder();
    std::filesystem::create_symlink("/dev/full", folder + "set" + suffix + ".partial");
    EXPECT_EQ(error_of<FileError>([&] {
                write_dataset(folder + "set", {{1, 256}});
              }),
              "cannot write " + folder + "set" + suffix +
                  ": No space left on device; free space there or write elsewhere");
    EXPECT_EQ(count_files(folder), 0);
  }
}

TEST(IndexedDatasetWriter, NamesTheFolderItCannotMake) {
  const std::string folder = fresh_folder();
  write_file(folder + "file", "");
  EXPECT_EQ(error_of<FileError>([&] {
              write_dataset(folder + "file/set", {{1, 256}});
            }),
            "cannot write " + folder + "file/set.bin: Not a directory; create the folder first");
}

}  // namespace
}  // namespace switchyard
