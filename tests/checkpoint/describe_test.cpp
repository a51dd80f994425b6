#include "checkpoint/describe.h"

#include <gtest/gtest.h>

#include <ATen/ATen.h>

#include "checkpoint/checkpoint.h"
#include "checkpoint/checkpoint_tests.h"
#include "parallel/launch.h"

namespace switchyard {
namespace {

class DescribeTest : public testing::Test {
 protected:
  DescribeTest() {
    CheckpointRecord record;
    record.total_steps = 100;
    record.samples_consumed = 640;
    record.tokens_seen = 1234;
    record.seed = 7;
    record.fingerprint = "0123abcd";
    record.layout = "world 2: tp 2";
    record.num_threads = 3;
    record.instruction_set = "AVX2";
    record.torch_version = "2.15.0";
    for (const int64_t step : {10, 20}) {
      record.step = step;
      run_ranks({.world_size = 2, .tensor = 2}, [&](Groups& groups) {
        save_checkpoint(run_ / "checkpoints", record,
                        {{"weight", {6, 400}, {3 * groups.rank(), 0}, at::ones({3, 400})},
                         {"a.longer.name", {}, {}, at::ones({}, at::kDouble), 2, groups.rank()}},
                        groups[GroupName::kWorld], 0);
      });
    }
  }

  TemporaryFolder run_;
};

TEST_F(DescribeTest, ShowsRecordAndTensors) {
  const auto path = run_ / "checkpoints/step_20";
  EXPECT_EQ(describe_checkpoint(path), "checkpoint " + path.string() + R"(
  step              20 of 100
  samples consumed  640
  tokens seen       1234
  seed              7
  settings          0123abcd
  layout            world 2: tp 2
  threads per rank  3
  instruction set   AVX2
  libtorch          2.15.0
  2 tensors, 9.6 kB, in 2 files

  tensor         dtype shape                      size  boxes
  a.longer.name  F64   []                          8 B      1
  weight         F32   [6, 400]                 9.6 kB      2
)");
}

TEST_F(DescribeTest, ShowsTheLatestOfARunOrAFolder) {
  const std::string one = describe_checkpoint(run_ / "checkpoints/step_20");
  const std::string all =
      (run_ / "checkpoints").string() + " holds step_10, step_20; the latest:\n\n";
  EXPECT_EQ(describe_checkpoint(run_.path()), all + one);
  EXPECT_EQ(describe_checkpoint(run_ / "checkpoints"), all + one);
}

TEST_F(DescribeTest, VerifiesEveryByteWhenAsked) {
  const auto path = run_ / "checkpoints/step_20";
  EXPECT_TRUE(describe_checkpoint(path, true).ends_with("\n  every byte matches its checksum\n"));
  const auto file = path / "rank_00000.safetensors";
  std::string bytes = file_bytes(file);
  bytes.back() = static_cast<char>(bytes.back() ^ 1);
  write_bytes(file, bytes);
  EXPECT_NO_THROW(describe_checkpoint(path));
  EXPECT_NE(message_of<DamagedCheckpoint>([&] {
              describe_checkpoint(path, true);
            }).find("does not match its checksum"),
            std::string::npos);
}

TEST_F(DescribeTest, SaysWhatADamagedOneLacks) {
  const auto path = run_ / "checkpoints/step_20";
  std::filesystem::remove(path / "record.json");
  EXPECT_TRUE(is_checkpoint(path));
  EXPECT_EQ(message_of<DamagedCheckpoint>([&] { describe_checkpoint(path); }),
            "cannot read " + (path / "record.json").string() +
                ": No such file or directory; check the path");
}

TEST_F(DescribeTest, TellsACheckpointFromOtherPaths) {
  EXPECT_TRUE(is_checkpoint(run_.path()));
  EXPECT_TRUE(is_checkpoint(run_ / "checkpoints"));
  EXPECT_TRUE(is_checkpoint(run_ / "checkpoints/step_10"));
  EXPECT_FALSE(is_checkpoint(run_ / "none"));
  const TemporaryFolder empty;
  EXPECT_FALSE(is_checkpoint(empty.path()));
  EXPECT_EQ(message_of<CheckpointError>([&] { describe_checkpoint(empty.path()); }),
            empty.path().string() +
                " holds no checkpoint: give a run directory, its checkpoints "
                "folder or one step_N of it");
}

}  // namespace
}  // namespace switchyard
