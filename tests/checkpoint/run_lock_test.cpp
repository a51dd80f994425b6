#include "checkpoint/run_lock.h"

#include <optional>

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/error.h"
#include "checkpoint/checkpoint_tests.h"

namespace switchyard {
namespace {

std::string message_of_taking(const std::filesystem::path& directory) {
  return message_of<FileError>([&] { RunLock lock(directory); });
}

TEST(RunLock, MakesTheDirectoryAndCanBeTakenAgainAfterwards) {
  const TemporaryFolder folder;
  const std::filesystem::path run = folder / "runs/first";
  for (int turn = 0; turn < 2; ++turn) {
    const RunLock lock(run);
    EXPECT_TRUE(
        file_bytes(run / "lock").starts_with("process " + std::to_string(getpid()) + " on "));
  }
}

TEST(RunLock, NamesTheProcessThatHoldsIt) {
  const TemporaryFolder folder;
  std::optional<RunLock> lock(std::in_place, folder.path());
  const std::string message = message_of_taking(folder.path());
  EXPECT_TRUE(message.starts_with(folder.path().string() + " is in use by process " +
                                  std::to_string(getpid()) + " on "))
      << message;
  EXPECT_TRUE(message.ends_with(": wait for it to end, stop it, or choose another run.dir"))
      << message;
  lock.reset();
  EXPECT_EQ(message_of_taking(folder.path()), "");
}

TEST(RunLock, IsFreeOnceItsHolderWasKilled) {
  const TemporaryFolder folder;
  int ready[2];
  ASSERT_EQ(pipe(ready), 0);
  const pid_t child = fork();
  if (child == 0) {
    const RunLock lock(folder.path());
    (void)!write(ready[1], "x", 1);
    pause();
    _exit(0);
  }
  char byte = 0;
  ASSERT_EQ(read(ready[0], &byte, 1), 1);
  EXPECT_NE(message_of_taking(folder.path()).find("process " + std::to_string(child)),
            std::string::npos);
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
  EXPECT_EQ(message_of_taking(folder.path()), "");
}

TEST(RunLock, SaysWhenTheDirectoryCannotBeWritten) {
  const TemporaryFolder folder;
  std::filesystem::create_directory(folder / "lock");
  EXPECT_EQ(message_of_taking(folder.path()),
            "cannot write " + (folder / "lock").string() + ": Is a directory; check the disk");
}

}  // namespace
}  // namespace switchyard
