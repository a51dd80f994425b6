#include "checkpoint/checkpoint_saver.h"

#include <chrono>
#include <thread>

#include <gtest/gtest.h>

#include <ATen/ATen.h>

#include "checkpoint/checkpoint.h"
#include "checkpoint/checkpoint_tests.h"
#include "checkpoint/test_model.h"
#include "parallel/launch.h"

namespace switchyard {
namespace {

const MeshShape kFour{.world_size = 4, .tensor = 2, .expert = 2};

void overwrite(const std::vector<TensorPart>& parts) {
  for (const TensorPart& part : parts) {
    part.values.fill_(-1);
  }
}

// The parts change as soon as save() returns, as they do in training.
TEST(CheckpointSaver, WritesTheSameBytesInTheBackground) {
  const TemporaryFolder folder;
  for (const bool in_background : {false, true}) {
    run_ranks(kFour, [&](Groups& groups) {
      const Group& world = groups[GroupName::kWorld];
      CheckpointSaver saver(folder / (in_background ? "background" : "foreground"), world, 0,
                            in_background);
      for (const int64_t step : {1, 2}) {
        const TestModel model(groups, Dtypes::bf16(), static_cast<uint64_t>(step),
                              DataSharding::kOptimizer);
        saver.save(record_at(step), model.parts());
        overwrite(model.parts());
        EXPECT_EQ(saver.saved_step(), in_background
                                          ? (step == 1 ? std::nullopt : std::optional<int64_t>(1))
                                          : std::optional(step));
      }
      while (saver.saved_step() != 2) {
        saver.poll();
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
      }
    });
  }
  int num_files = 0;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder / "foreground")) {
    if (entry.is_regular_file()) {
      const auto name = std::filesystem::relative(entry.path(), folder / "foreground");
      EXPECT_EQ(file_bytes(entry.path()), file_bytes(folder / "background" / name)) << name;
      ++num_files;
    }
  }
  EXPECT_EQ(num_files, 1 + 2 * (1 + 2 * 4));  // latest; per step a record, and two per rank
}

TEST(CheckpointSaver, HasNothingToDoWithoutASave) {
  const TemporaryFolder folder;
  const auto groups = Groups::single();
  CheckpointSaver saver(folder.path(), (*groups)[GroupName::kWorld], 0, true);
  saver.poll();
  saver.finish();
  EXPECT_EQ(saver.saved_step(), std::nullopt);
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
}

TEST(CheckpointSaver, LeavesNothingOfASaveThatIsGivenUp) {
  const TemporaryFolder folder;
  const auto groups = Groups::single();
  {
    CheckpointSaver saver(folder.path(), (*groups)[GroupName::kWorld], 0, true);
    const TestModel model(*groups, Dtypes::fp32(), 1);
    saver.save(record_at(1), model.parts());
  }
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
}

}  // namespace
}  // namespace switchyard
