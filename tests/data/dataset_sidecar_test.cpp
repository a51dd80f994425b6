#include "data/dataset_sidecar.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "data/dataset_files.h"

namespace switchyard {
namespace {

const std::string kJson = R"({
  "version": 1,
  "tokenizer": "bytes",
  "tokenizer_hash": "50fef12e046d7d5e",
  "vocab_size": 257,
  "end_of_document": 256,
  "num_documents": 3,
  "num_tokens": 15,
  "bin_crc32c": "0a1b2c3d",
  "idx_crc32c": "ffffffff"
}
)";

DatasetSidecar example() {
  return {"bytes", 0x50fef12e046d7d5e, 257, 256, 3, 15, 0x0a1b2c3d, 0xffffffff};
}

std::string error_after(const std::string& from, const std::string& to) {
  std::string json = kJson;
  json.replace(json.find(from), from.size(), to);
  return error_of<FileError>([&] { sidecar_from_json(json, "a.json"); });
}

TEST(DatasetSidecar, IsReadableJson) {
  EXPECT_EQ(to_json(example()), kJson);
}

TEST(DatasetSidecar, ComesBackFromItsJson) {
  EXPECT_EQ(sidecar_from_json(kJson, "a.json"), example());
}

TEST(DatasetSidecar, NamesTheFieldThatIsWrong) {
  const std::string advice = "; write the data set again with `switchyard tokenize`";
  EXPECT_EQ(error_after("\"vocab_size\": 257,", ""), "a.json: vocab_size is missing" + advice);
  EXPECT_EQ(error_after("257", "\"257\""),
            "a.json: vocab_size is \"257\", expected a whole number from 1 on" + advice);
  EXPECT_EQ(error_after("257", "0"),
            "a.json: vocab_size is 0, expected a whole number from 1 on" + advice);
  EXPECT_EQ(error_after("15", "1.5"),
            "a.json: num_tokens is 1.5, expected a whole number from 0 on" + advice);
  EXPECT_EQ(error_after("15", "99999999999999999999"),
            "a.json: num_tokens is 1e+20, expected a whole number from 0 on" + advice);
  EXPECT_EQ(
      error_after("15", "18446744073709551615"),
      "a.json: num_tokens is 18446744073709551615, expected a whole number from 0 on" + advice);
  EXPECT_EQ(error_after("\"bytes\"", "7"), "a.json: tokenizer is 7, expected a string" + advice);
  EXPECT_EQ(error_after("0a1b2c3d", "0a1b2c3"),
            "a.json: bin_crc32c is \"0a1b2c3\", expected 8 hexadecimal digits" + advice);
  EXPECT_EQ(error_after("0a1b2c3d", "0a1b2c3x"),
            "a.json: bin_crc32c is \"0a1b2c3x\", expected 8 hexadecimal digits" + advice);
  EXPECT_EQ(error_after("256", "257"),
            "a.json: end_of_document is 257, outside the vocabulary of 257" + advice);
  EXPECT_EQ(error_after("\"num", "\"sum\": 0, \"num"),
            "a.json has fields that are not known" + advice);
  EXPECT_EQ(error_after("\"version\": 1", "\"version\": 2"),
            "a.json has version 2, this program reads version 1; use the program that wrote it or "
            "tokenize again");
}

TEST(DatasetSidecar, RefusesWhatIsNotAnObject) {
  for (const std::string text : {"", "[1]", "{\"version\": 1", "null", "\xff"}) {
    EXPECT_EQ(error_of<FileError>([&] { sidecar_from_json(text, "a.json"); }),
              "a.json is not a JSON object; write the data set again with `switchyard tokenize`");
  }
}

// Torn anywhere, it is an error and not a crash. (Cut after the brace, only blanks are missing.)
TEST(DatasetSidecar, RefusesEveryTornText) {
  for (size_t size = 0; size + 2 < kJson.size(); ++size) {
    EXPECT_THROW(sidecar_from_json(kJson.substr(0, size), "a.json"), FileError) << size;
  }
}

}  // namespace
}  // namespace switchyard
