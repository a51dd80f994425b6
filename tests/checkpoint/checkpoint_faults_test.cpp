#include <chrono>
#include <thread>

#include <gtest/gtest.h>
#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/wait.h>
#include <unistd.h>

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include "base/random.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/checkpoint_folder.h"
#include "checkpoint/checkpoint_saver.h"
#include "checkpoint/checkpoint_tests.h"
#include "checkpoint/test_model.h"
#include "parallel/launch.h"

// Damage of every kind to the files, and processes and disks that fail while saving.
namespace switchyard {
namespace {

// Two checkpoints of two ranks each, steps 1 and 2, loaded by one rank. Every value is the step.
class DamageTest : public testing::Test {
 protected:
  DamageTest() {
    for (const int64_t step : {1, 2}) {
      run_ranks({.world_size = 2}, [&](Groups& groups) {
        const auto value = static_cast<double>(step);
        save_checkpoint(folder_.path(), record_at(step),
                        {{"x", {6, 4}, {3 * groups.rank(), 0}, at::full({3, 4}, value)},
                         {"y", {5}, {0}, at::full({5}, value, at::kDouble), 2, groups.rank()}},
                        groups[GroupName::kWorld], 0);
      });
    }
  }

  std::vector<TensorPart> parts() const { return {{"x", {6, 4}, {0, 0}, x_}, {"y", {5}, {0}, y_}}; }
  const Group& world() const { return (*groups_)[GroupName::kWorld]; }

  // What is found wrong with step 2; empty when nothing is.
  std::string fault() const {
    return message_of<DamagedCheckpoint>(
        [&] { load_checkpoint(folder_ / "step_2", parts(), world()); });
  }

  void expect_step(const std::optional<LoadedCheckpoint>& loaded, int64_t step) const {
    ASSERT_TRUE(loaded);
    EXPECT_EQ(loaded->record.step, step);
    EXPECT_TRUE(x_.eq(step).all().item<bool>());
    EXPECT_TRUE(y_.eq(step).all().item<bool>());
  }

  std::vector<std::filesystem::path> files_of_step_2() const {
    std::vector<std::filesystem::path> files;
    for (const auto& entry : std::filesystem::directory_iterator(folder_ / "step_2")) {
      files.push_back(entry.path());
    }
    EXPECT_EQ(files.size(), 5U);  // record, and two ranks with an index each
    return files;
  }

  TemporaryFolder folder_;
  std::unique_ptr<Groups> groups_ = Groups::single();
  at::Tensor x_ = at::zeros({6, 4});
  at::Tensor y_ = at::zeros({5}, at::kDouble);
};

TEST_F(DamageTest, AFlippedBitInAnyByteOfAnyFileIsFound) {
  const RandomStream stream(1, "bits");
  for (const auto& path : files_of_step_2()) {
    const std::string bytes = file_bytes(path);
    for (size_t at = 0; at < bytes.size(); ++at) {
      std::string altered = bytes;
      altered[at] = static_cast<char>(altered[at] ^ (1 << stream.below(at, 8)));
      write_bytes(path, altered);
      const std::string message = fault();
      ASSERT_NE(message.find(path.filename().string()), std::string::npos) << at << ": " << message;
    }
    write_bytes(path, bytes);
    ASSERT_EQ(fault(), "");
  }
}

TEST_F(DamageTest, AFileCutShortOrLongerOrGoneIsFound) {
  for (const auto& path : files_of_step_2()) {
    const std::string bytes = file_bytes(path);
    for (size_t size = 0; size < bytes.size(); size += 7) {
      write_bytes(path, bytes.substr(0, size));
      EXPECT_NE(fault().find(path.filename().string()), std::string::npos) << size;
    }
    write_bytes(path, bytes + "x");
    EXPECT_NE(fault().find(path.filename().string()), std::string::npos);
    std::filesystem::remove(path);
    EXPECT_EQ(fault(),
              "cannot read " + path.string() + ": No such file or directory; check the path");
    write_bytes(path, bytes);
    EXPECT_EQ(fault(), "");
  }
}

TEST_F(DamageTest, FilesOfAnotherSaveAreFound) {
  for (const auto& path : files_of_step_2()) {
    const std::string name = path.filename().string();
    if (name == "record.json") {
      continue;  // steps 1 and 2 have equal indexes but for their checksums: tested by the others
    }
    const std::string bytes = file_bytes(path);
    write_bytes(path, file_bytes(folder_ / ("step_1/" + name)));
    EXPECT_NE(fault(), "") << name;
    write_bytes(path, bytes);
  }
  EXPECT_EQ(fault(), "");
}

TEST_F(DamageTest, TheCheckpointBeforeIsTakenInstead) {
  expect_step(load_latest_checkpoint(folder_.path(), parts(), world()), 2);
  const auto path = folder_ / "step_2/rank_00001.safetensors";
  const std::string bytes = file_bytes(path);
  std::string altered = bytes;
  altered.back() = static_cast<char>(altered.back() ^ 1);
  write_bytes(path, altered);
  testing::internal::CaptureStderr();
  expect_step(load_latest_checkpoint(folder_.path(), parts(), world()), 1);
  const std::string warning = testing::internal::GetCapturedStderr();
  EXPECT_NE(warning.find("checkpoint " + (folder_ / "step_2").string() +
                         " is passed over: " + path.string() + ": block 0 of \""),
            std::string::npos)
      << warning;
  EXPECT_NE(warning.find("does not match its checksum"), std::string::npos);
  EXPECT_EQ(std::count(warning.begin(), warning.end(), '\n'), 1) << warning;
  write_bytes(path, bytes);
  expect_step(load_latest_checkpoint(folder_.path(), parts(), world()), 2);
}

TEST_F(DamageTest, AllRanksTakeTheSameOneWhenOneRankFindsDamage) {
  // Only rank 1 reads the damaged block.
  const auto path = folder_ / "step_2/rank_00001.safetensors";
  std::string bytes = file_bytes(path);
  const size_t data = bytes.size() - 48 + 5;
  bytes[data] = static_cast<char>(bytes[data] ^ 1);
  write_bytes(path, bytes);
  std::vector<int64_t> steps(2);
  run_ranks({.world_size = 2}, [&](Groups& groups) {
    const std::vector<TensorPart> own{
        {"x", {6, 4}, {3 * groups.rank(), 0}, at::zeros({3, 4})},
        {"y", {5}, {0}, at::zeros({5}, at::kDouble), 2, groups.rank()}};
    const auto loaded = load_latest_checkpoint(folder_.path(), own, groups[GroupName::kWorld]);
    const bool is_filled =
        own[0].values.eq(1).all().item<bool>() && own[1].values.eq(1).all().item<bool>();
    steps[static_cast<size_t>(groups.rank())] = is_filled ? loaded->record.step : -1;
  });
  EXPECT_EQ(steps, (std::vector<int64_t>{1, 1}));
}

TEST_F(DamageTest, OnlyTheBlocksThatAreReadAreVerified) {
  const auto path = folder_ / "step_2/rank_00001.safetensors";
  std::string bytes = file_bytes(path);
  const size_t at = bytes.find("x@3,0") == std::string::npos ? 0 : bytes.size() - 1;
  ASSERT_NE(at, 0U);
  bytes[at] = static_cast<char>(bytes[at] ^ 1);
  write_bytes(path, bytes);
  const std::vector<TensorPart> upper{{"x", {6, 4}, {0, 0}, at::zeros({3, 4})}};
  load_checkpoint(folder_ / "step_2", upper, world(), {.ignored_prefixes = {"y"}});
  EXPECT_TRUE(upper[0].values.eq(2).all().item<bool>());
  EXPECT_NE(fault(), "");
}

TEST_F(DamageTest, WhenNoneIsGoodAllAreListed) {
  std::filesystem::remove(folder_ / "step_1/record.json");
  std::filesystem::remove(folder_ / "step_2/rank_00000.index.json");
  const std::string missing = ": No such file or directory; check the path";
  EXPECT_EQ(message_of<CheckpointError>(
                [&] { load_latest_checkpoint(folder_.path(), parts(), world()); }),
            folder_.path().string() + ": no checkpoint in it is good: cannot read " +
                (folder_ / "step_2/rank_00000.index.json").string() + missing + "; cannot read " +
                (folder_ / "step_1/record.json").string() + missing +
                ". Restore one, or move the folder away to start from step 0");
}

TEST_F(DamageTest, WithoutAGoodLatestTheMostStepsAreTaken) {
  write_bytes(folder_ / "latest", "step_1\ncrc32c 00000000\n");
  testing::internal::CaptureStderr();
  expect_step(load_latest_checkpoint(folder_.path(), parts(), world()), 2);
  EXPECT_NE(
      testing::internal::GetCapturedStderr().find(
          "latest: does not match its checksum: it was altered or cut short; the checkpoint of "
          "the most steps is taken"),
      std::string::npos);
}

// The child saves step after step, each value equal to the step, and tells which are done.
[[noreturn]] void save_for_ever(const std::filesystem::path& folder, int64_t step, int done) {
  at::set_num_threads(1);
  const auto groups = Groups::single();
  const at::Tensor values = at::zeros({300, 100});
  while (true) {
    ++step;
    values.fill_(step);
    save_checkpoint(folder, record_at(step), {{"x", {300, 100}, {0, 0}, values}},
                    (*groups)[GroupName::kWorld], 2);
    (void)!write(done, &step, sizeof(step));
  }
}

// Starts such a child, waits for one save and kills it some time within the next two. Returns the
// last step that it told.
int64_t save_until_killed(const std::filesystem::path& folder, int64_t step, double when) {
  int done[2];
  EXPECT_EQ(pipe(done), 0);
  const auto start = std::chrono::steady_clock::now();
  const pid_t child = fork();
  if (child == 0) {
    save_for_ever(folder, step, done[1]);
  }
  close(done[1]);
  int64_t last = -1;
  EXPECT_EQ(read(done[0], &last, sizeof(last)), static_cast<ssize_t>(sizeof(last)));
  std::this_thread::sleep_for((std::chrono::steady_clock::now() - start) * (2 * when));
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
  while (read(done[0], &last, sizeof(last)) > 0) {
  }
  close(done[0]);
  return last;
}

TEST(KilledSave, LeavesTheLastFinishedCheckpointOrTheNextWhole) {
  const TemporaryFolder folder;
  const auto groups = Groups::single();
  const at::Tensor values = at::zeros({300, 100});
  const std::vector<TensorPart> parts{{"x", {300, 100}, {0, 0}, values}};
  const Group& world = (*groups)[GroupName::kWorld];
  const RandomStream stream(1, "kill");
  int64_t step = 0;
  int num_leftovers = 0;
  for (uint64_t trial = 0; trial < 40; ++trial) {
    const int64_t last = save_until_killed(folder.path(), step, stream.uniform(trial));
    for (const auto& entry : std::filesystem::directory_iterator(folder.path())) {
      num_leftovers += step_of(entry.path()) || entry.path().filename() == "latest" ? 0 : 1;
    }
    const auto loaded = load_latest_checkpoint(folder.path(), parts, world);
    ASSERT_TRUE(loaded);
    step = loaded->record.step;
    EXPECT_GE(step, last);
    EXPECT_LE(step, last + 1);
    EXPECT_TRUE(values.eq(step).all().item<bool>());
  }
  EXPECT_GT(num_leftovers, 5);  // the kills did fall into saves
  save_checkpoint(folder.path(), record_at(step + 1), parts, world, 2);
  const std::filesystem::directory_iterator entries(folder.path());
  EXPECT_EQ(std::distance(begin(entries), end(entries)), 3);  // two checkpoints and `latest`
}

// Runs `body` in a process of its own whose `folder` is a disk of `size`, and returns what it
// returns. nullopt where the system does not let this process mount one.
std::optional<std::string> on_a_small_disk(const std::filesystem::path& folder, const char* size,
                                           const std::function<std::string()>& body) {
  int result[2];
  EXPECT_EQ(pipe(result), 0);
  const pid_t child = fork();
  if (child == 0) {
    at::set_num_threads(1);
    const bool is_mounted =
        unshare(getuid() == 0 ? CLONE_NEWNS : CLONE_NEWNS | CLONE_NEWUSER) == 0 &&
        mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0 &&
        mount("none", folder.c_str(), "tmpfs", 0, fmt::format("size={}", size).c_str()) == 0;
    std::string text = "not mounted";
    if (is_mounted) {
      try {
        text = body();
      } catch (const std::exception& error) {
        text = std::string("unexpected: ") + error.what();
      }
    }
    (void)!write(result[1], text.data(), text.size());
    _exit(0);
  }
  close(result[1]);
  std::string text;
  char byte = 0;
  while (read(result[0], &byte, 1) == 1) {
    text += byte;
  }
  close(result[0]);
  waitpid(child, nullptr, 0);
  return text == "not mounted" ? std::nullopt : std::optional(text);
}

// Saves a small checkpoint, then `fails`, which must make all ranks throw; returns rank 0's message
// and what is in the folder afterwards.
std::string save_then_fail(const std::filesystem::path& folder, int64_t numel,
                           const std::function<void()>& prepare, bool in_background = false) {
  std::vector<std::string> messages(2);
  run_ranks({.world_size = 2}, [&](Groups& groups) {
    const Group& world = groups[GroupName::kWorld];
    const auto save = [&](int64_t step, int64_t size) {
      CheckpointSaver saver(folder, world, 1, in_background);
      saver.save(record_at(step), {{"x", {2 * size}, {size * groups.rank()}, at::ones({size})}});
      saver.finish();
    };
    save(1, 10);
    if (world.rank() == 0) {
      prepare();
    }
    world.barrier({"test.prepared", Purpose::kControl});
    messages[static_cast<size_t>(world.rank())] =
        message_of<CheckpointError>([&] { save(2, numel); });
    load_latest_checkpoint(folder, {{"x", {20}, {10 * groups.rank()}, at::zeros({10})}}, world);
  });
  std::string text = messages[0] == messages[1] ? messages[0] : messages[0] + " / " + messages[1];
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    names.push_back(entry.path().filename().string());
  }
  std::sort(names.begin(), names.end());
  return fmt::format("{} | {}", text, fmt::join(names, " "));
}

class FailingDisk : public testing::TestWithParam<bool> {};

TEST_P(FailingDisk, AFullOneLeavesTheCheckpointBeforeAndNothingElse) {
  const TemporaryFolder folder;
  const auto text = on_a_small_disk(folder.path(), "200k", [&] {
    return save_then_fail(
        folder.path(), 100'000, [] {}, /*in_background=*/GetParam());
  });
  if (!text) {
    GTEST_SKIP() << "this system does not let the test mount a small disk";
  }
  const std::string file = (folder / "step_2.partial/rank_0000").string();
  EXPECT_TRUE(text->starts_with("rank 0: cannot write " + file) ||
              text->starts_with("rank 1: cannot write " + file))
      << *text;
  EXPECT_TRUE(text->ends_with(
      ".safetensors: No space left on device; free space there or write elsewhere | latest step_1"))
      << *text;
}

INSTANTIATE_TEST_SUITE_P(Saves, FailingDisk, testing::Bool(),
                         [](const testing::TestParamInfo<bool>& one) {
                           return one.param ? "InTheBackground" : "InTheForeground";
                         });

TEST(FailingDiskAlone, AReadOnlyOneIsNamed) {
  const TemporaryFolder folder;
  const auto text = on_a_small_disk(folder.path(), "200k", [&] {
    return save_then_fail(folder.path(), 10, [&] {
      mount("none", folder.path().c_str(), nullptr, MS_REMOUNT | MS_RDONLY, nullptr);
    });
  });
  if (!text) {
    GTEST_SKIP() << "this system does not let the test mount a small disk";
  }
  EXPECT_EQ(*text,
            "rank 0: cannot make the folder " + (folder / "step_2.partial").string() +
                ": Read-only file system; make it readable and writable or use another folder"
                " | latest step_1");
}

}  // namespace
}  // namespace switchyard
