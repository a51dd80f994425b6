#include "checkpoint/checkpoint_folder.h"

#include <gtest/gtest.h>

#include "checkpoint/checkpoint_tests.h"
#include "checkpoint/error.h"

namespace switchyard {
namespace {

std::vector<int64_t> steps_in(const std::filesystem::path& directory) {
  std::vector<int64_t> steps;
  for (const auto& path : list_checkpoints(directory)) {
    steps.push_back(*step_of(path));
  }
  return steps;
}

void make_steps(const TemporaryFolder& folder, const std::vector<std::string>& names) {
  for (const std::string& name : names) {
    std::filesystem::create_directory(folder / name);
    write_bytes(folder / (name + "/file"), "x");
  }
}

TEST(StepOf, TakesOnlyTheNamesThatSavesGive) {
  EXPECT_EQ(step_of("a/b/step_20"), 20);
  EXPECT_EQ(step_of("step_0"), 0);
  for (const char* name :
       {"step_", "step_020", "step_-1", "step_20.partial", "step_20.deleted", "step_x", "20",
        "step_+1", "step_ 1", "step_99999999999999999999", "Step_1", ""}) {
    EXPECT_FALSE(step_of(name)) << name;
  }
}

TEST(ListCheckpoints, SortsByNumberAndLeavesOutTheUnfinished) {
  const TemporaryFolder folder;
  make_steps(folder, {"step_100", "step_20", "step_3", "step_200.partial", "step_1.deleted"});
  write_bytes(folder / "step_7", "a file");
  EXPECT_EQ(steps_in(folder.path()), (std::vector<int64_t>{3, 20, 100}));
  EXPECT_TRUE(list_checkpoints(folder / "none").empty());
}

TEST(Latest, ReadsBackAndNoticesEveryFlippedBit) {
  const TemporaryFolder folder;
  EXPECT_FALSE(read_latest(folder.path()));
  write_latest(folder.path(), 20);
  EXPECT_EQ(read_latest(folder.path()), 20);
  const std::string path = (folder / "latest").string();
  const std::string bytes = file_bytes(path);
  EXPECT_TRUE(bytes.starts_with("step_20\n"));
  const auto message = [&](const std::string& altered) {
    write_bytes(path, altered);
    return message_of<DamagedCheckpoint>([&] { read_latest(folder.path()); });
  };
  for (size_t at = 0; at < bytes.size(); ++at) {
    for (int bit = 0; bit < 8; ++bit) {
      std::string altered = bytes;
      altered[at] = static_cast<char>(altered[at] ^ (1 << bit));
      EXPECT_EQ(message(altered),
                path + ": does not match its checksum: it was altered or cut short");
    }
    EXPECT_NE(message(bytes.substr(0, at)), "");
  }
}

TEST(DeleteLeftovers, DeletesOnlyWhatSavesLeave) {
  const TemporaryFolder folder;
  make_steps(folder, {"step_1", "step_2.partial", "step_3.deleted", "mine.partial"});
  delete_leftovers(folder.path());
  EXPECT_TRUE(std::filesystem::exists(folder / "step_1/file"));
  EXPECT_TRUE(std::filesystem::exists(folder / "mine.partial/file"));
  EXPECT_FALSE(std::filesystem::exists(folder / "step_2.partial"));
  EXPECT_FALSE(std::filesystem::exists(folder / "step_3.deleted"));
}

TEST(DeleteOldCheckpoints, KeepsTheNewestAndWhatLiesBeyond) {
  const TemporaryFolder folder;
  make_steps(folder, {"step_1", "step_2", "step_3", "step_4", "step_50"});
  delete_old_checkpoints(folder.path(), 4, 0);
  EXPECT_EQ(steps_in(folder.path()), (std::vector<int64_t>{1, 2, 3, 4, 50}));
  delete_old_checkpoints(folder.path(), 4, 5);
  EXPECT_EQ(steps_in(folder.path()), (std::vector<int64_t>{1, 2, 3, 4, 50}));
  delete_old_checkpoints(folder.path(), 4, 2);
  EXPECT_EQ(steps_in(folder.path()), (std::vector<int64_t>{3, 4, 50}));
}

}  // namespace
}  // namespace switchyard
