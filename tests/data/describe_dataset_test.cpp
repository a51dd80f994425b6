#include "data/describe_dataset.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "data/dataset_files.h"

namespace switchyard {
namespace {

std::vector<int32_t> repeat(int32_t id, size_t count) {
  return std::vector<int32_t>(count, id);
}

TEST(DescribeDataset, ShowsWhatTheDataSetIs) {
  const std::string prefix = write_dataset(
      fresh_folder() + "set", {{'A', '\n', 1, 256}, {0xc3, 0xa9}, {256}, repeat('x', 1234)});
  EXPECT_TRUE(is_dataset(prefix));
  EXPECT_EQ(describe_dataset(prefix, false),
            prefix + R"(: tokenized documents (Megatron's .bin and .idx)
  documents         4
  their lengths     1 to 1,234 tokens, 310 on average
  tokens            1,241
  stored as         uint16, 2,482 bytes in all
  tokenizer         bytes (50fef12e046d7d5e)
  vocabulary        257
  end of document   256; 2 of 4 documents end with it: the others run into the next one
  checksum          )" +
                read_file(prefix + ".json")
                    .substr(read_file(prefix + ".json").find("bin_crc32c") + 14, 8) +
                R"(, not verified (--verify reads the whole file)
document 0, 4 of 4 tokens:
  |A|\n|\x01|<end of document>|
document 1, 2 of 2 tokens:
  |)" + R"(\xc3|\xa9)" +
                R"(|
document 2, 1 of 1 tokens:
  |<end of document>|
)");
}

TEST(DescribeDataset, ShowsTheBeginningOfALongDocument) {
  const std::string prefix = write_dataset(fresh_folder() + "set", {repeat('x', 1234)});
  const std::string text = describe_dataset(prefix, false);
  EXPECT_NE(text.find("document 0, 32 of 1,234 tokens:\n  |x|x|"), std::string::npos) << text;
}

TEST(DescribeDataset, ShowsIdsWhereTheTokenizerIsNotKnown) {
  const std::string prefix = write_dataset(fresh_folder() + "set", {{7, 256}});
  std::filesystem::remove(prefix + ".json");
  const std::string text = describe_dataset(prefix, false);
  EXPECT_NE(text.find("tokenizer         not known: " + prefix + ".json is missing\n"),
            std::string::npos)
      << text;
  EXPECT_NE(text.find("  |7|256|\n"), std::string::npos) << text;
}

TEST(DescribeDataset, VerifiesWhenAsked) {
  const std::string prefix = write_dataset(fresh_folder() + "set", {{7, 8, 256}});
  EXPECT_NE(describe_dataset(prefix, true).find(", verified\n"), std::string::npos);
  std::string bin = read_file(prefix + ".bin");
  bin[0] = 9;
  write_file(prefix + ".bin", bin);
  EXPECT_THROW(describe_dataset(prefix, true), FileError);
}

TEST(DescribeDataset, ShowsAnEmptySet) {
  const std::string prefix = write_dataset(fresh_folder() + "set", {});
  EXPECT_NE(describe_dataset(prefix, true).find("documents         0\n"), std::string::npos);
  EXPECT_FALSE(is_dataset(prefix + "x"));
}

}  // namespace
}  // namespace switchyard
