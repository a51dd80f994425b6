#include "checkpoint/index.h"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <ATen/ATen.h>

#include "checkpoint/checkpoint_tests.h"
#include "checkpoint/error.h"
#include "checkpoint/sealed_json.h"

namespace switchyard {
namespace {

using Json = nlohmann::json;

FileIndex small_index() {
  return {"rank_00000.safetensors",
          1000,
          0xfedcba98,
          16,
          {{"x", "x@0,2", at::kFloat, {4, 6}, {{0, 2}, {4, 2}}, {1, 0xffffffff}},
           {"scalar", "scalar", at::kBFloat16, {}, {}, {7}},
           {"empty", "empty", at::kLong, {0}, {{0}, {0}}, {}}}};
}

TEST(Index, ReadsBackAsWritten) {
  const TemporaryFolder folder;
  const FileIndex index = small_index();
  const std::string checksum = write_index(folder / "file", index);
  const FileIndex read = read_index(folder / "file", checksum);
  EXPECT_EQ(read.file, index.file);
  EXPECT_EQ(read.num_bytes, index.num_bytes);
  EXPECT_EQ(read.header_checksum, index.header_checksum);
  EXPECT_EQ(read.block_bytes, index.block_bytes);
  ASSERT_EQ(read.entries.size(), index.entries.size());
  for (size_t i = 0; i < read.entries.size(); ++i) {
    EXPECT_EQ(read.entries[i].tensor, index.entries[i].tensor);
    EXPECT_EQ(read.entries[i].key, index.entries[i].key);
    EXPECT_EQ(read.entries[i].dtype, index.entries[i].dtype);
    EXPECT_EQ(read.entries[i].global_shape, index.entries[i].global_shape);
    EXPECT_EQ(read.entries[i].box, index.entries[i].box);
    EXPECT_EQ(read.entries[i].checksums, index.entries[i].checksums);
  }
  EXPECT_EQ(read.entries[0].num_bytes(), 32);
}

TEST(Index, OfAnotherSaveIsRefused) {
  const TemporaryFolder folder;
  write_index(folder / "file", small_index());
  const std::string message =
      message_of<DamagedCheckpoint>([&] { read_index(folder / "file", "00000000"); });
  EXPECT_NE(message.find("the record says 00000000: it belongs to another save"), std::string::npos)
      << message;
}

// Well sealed files that say what cannot be: nothing of them may reach the reader of the data.
TEST(Index, RefusesEntriesThatCannotBe) {
  const TemporaryFolder folder;
  write_index(folder / "file", small_index());
  const Json good = read_sealed_json(folder / "file").content;
  const auto message = [&](const char* pointer, const Json& value) {
    Json altered = good;
    altered[Json::json_pointer(pointer)] = value;
    const std::string checksum = write_sealed_json(folder / "file", altered, false);
    return message_of<CheckpointError>([&] { read_index(folder / "file", checksum); });
  };
  const auto expect = [&](const char* pointer, const Json& value, const std::string& expected) {
    const std::string text = message(pointer, value);
    EXPECT_NE(text.find(expected), std::string::npos) << text << "\nexpected " << expected;
  };
  EXPECT_EQ(message("/bytes", 1000), "");
  expect("/format", "other", "is a \"other\"");
  expect("/version", 2, "is of version 2");
  expect("/entries", 3, "the field \"entries\" is not a list");
  expect("/block_bytes", 0, "blocks of 0 bytes cannot be");
  expect("/block_bytes", 24, "blocks of 24 bytes cannot be");
  expect("/block_bytes", int64_t{1} << 40, "bytes cannot be");
  expect("/entries/0/dtype", "F31", "tensor \"x\" is \"F31\": one of F64");
  expect("/entries/0/global_shape", {4, -6}, "tensor \"x\": shape [4, -6] cannot be");
  expect("/entries/0/global_shape", {INT64_MAX, 6}, "cannot be");
  expect("/entries/0/global_shape", {4}, "its range has another number of dims than its shape");
  expect("/entries/0/range/start", {0}, "another number of dims");
  expect("/entries/0/range/shape", {4, INT64_MAX}, "cannot be");
  expect("/entries/0/range/kind", "flat",
         "tensor \"x\" is stored as \"flat\", which this version does not know: use the version");
  expect("/entries/0/crc32c", {1}, "tensor \"x\": 1 checksums, 2 blocks");
  expect("/entries/0/crc32c", {1, -1}, "a checksum is -1");
  expect("/entries/0/key", 3, "the field \"key\" is 3, which is not its type");
}

FileIndex file_with(const std::string& name, const std::vector<IndexEntry>& entries) {
  return {name, 0, 0, 16, entries};
}

IndexEntry entry_of(const Box& box, at::ScalarType dtype = at::kFloat,
                    const std::vector<int64_t>& global_shape = {4, 6}) {
  return {"x", "x", dtype, global_shape, box, {}};
}

TEST(MergeIndexes, FindsTheBoxesOfATensorInAllFiles) {
  const CheckpointIndex index =
      merge_indexes({file_with("a", {entry_of({{0, 0}, {4, 3}})}), file_with("b", {}),
                     file_with("c", {entry_of({{0, 3}, {4, 3}})})});
  ASSERT_EQ(index.tensors.size(), 1U);
  const StoredTensor& tensor = index.tensors.at("x");
  EXPECT_EQ(tensor.global_shape, (std::vector<int64_t>{4, 6}));
  ASSERT_EQ(tensor.boxes.size(), 2U);
  EXPECT_EQ(tensor.boxes[1].file, 2U);
  EXPECT_EQ(index.entry(tensor.boxes[1]).box.start, (std::vector<int64_t>{0, 3}));
}

TEST(MergeIndexes, NamesTheTensorThatIsNotThereExactlyOnce) {
  const auto message = [](const IndexEntry& first, const IndexEntry& second) {
    return message_of<DamagedCheckpoint>([&] {
      merge_indexes({file_with("a", {first}), file_with("b", {second})});
    });
  };
  const IndexEntry left = entry_of({{0, 0}, {4, 3}});
  EXPECT_EQ(message(left, entry_of({{0, 3}, {3, 3}})),
            "tensor \"x\" [4, 6] is incomplete: 3 of its elements are in no file");
  EXPECT_EQ(message(left, entry_of({{0, 2}, {4, 4}})),
            "tensor \"x\" [4, 6] is there twice: [0:4, 0:3] of a and [0:4, 2:6] of b overlap");
  EXPECT_EQ(message(left, entry_of({{0, 3}, {4, 4}})),
            "tensor \"x\" [4, 6]: [0:4, 3:7] of b reaches outside it");
  EXPECT_EQ(message(left, entry_of({{0, 3}, {4, 3}}, at::kDouble)),
            "b: tensor \"x\" is F64 [4, 6], in other files F32 [4, 6]");
  EXPECT_EQ(message(left, entry_of({{0, 3}, {4, 3}}, at::kFloat, {4, 7})),
            "b: tensor \"x\" is F32 [4, 7], in other files F32 [4, 6]");
}

}  // namespace
}  // namespace switchyard
