#include "checkpoint/agree.h"

#include <mutex>

#include <gtest/gtest.h>

#include "checkpoint/checkpoint_tests.h"
#include "checkpoint/error.h"
#include "parallel/launch.h"

namespace switchyard {
namespace {

constexpr MeshShape kThreeRanks{.world_size = 3};

// What every rank gets when each does `work`.
std::vector<std::string> messages_of(const std::function<std::string(int64_t rank)>& work) {
  std::vector<std::string> messages(3);
  run_ranks(kThreeRanks, [&](Groups& groups) {
    const Group& world = groups[GroupName::kWorld];
    const auto rank = static_cast<size_t>(world.rank());
    try {
      messages[rank] = run_and_agree(world, [&] { return work(world.rank()); }).at(2);
    } catch (const DamagedCheckpoint& error) {
      messages[rank] = std::string("damaged: ") + error.what();
    } catch (const CheckpointError& error) {
      messages[rank] = std::string("refused: ") + error.what();
    }
  });
  return messages;
}

std::vector<std::string> thrice(const std::string& text) {
  return {3, text};
}

TEST(RunAndAgree, ReturnsWhatEveryRankReturned) {
  EXPECT_EQ(messages_of([](int64_t rank) { return std::string(static_cast<size_t>(rank), 'x'); }),
            thrice("xx"));
  EXPECT_EQ(messages_of([](int64_t) { return std::string(); }), thrice(""));
}

TEST(RunAndAgree, ThrowsOnAllRanksWhatOneThrew) {
  EXPECT_EQ(messages_of([](int64_t rank) -> std::string {
              check<DamagedCheckpoint>(rank != 1, "torn");
              return "";
            }),
            thrice("damaged: rank 1: torn"));
  EXPECT_EQ(messages_of([](int64_t rank) -> std::string {
              check<FileError>(rank == 0, "full {}", rank);
              return "";
            }),
            thrice("refused: rank 1: full 1"));
  EXPECT_EQ(messages_of([](int64_t rank) -> std::string {
              return rank == 2 ? throw std::bad_alloc() : "";
            }),
            thrice("refused: rank 2: std::bad_alloc"));
}

TEST(RunAndAgree, NamesNoRankWhenAllFailAlike) {
  EXPECT_EQ(messages_of([](int64_t) -> std::string { throw DamagedCheckpoint("torn"); }),
            thrice("damaged: torn"));
}

TEST(RunOnFirstRank, RunsOnceAndFailsEverywhere) {
  std::mutex mutex;
  int num_runs = 0;
  int num_failures = 0;
  run_ranks(kThreeRanks, [&](Groups& groups) {
    const std::string message = message_of<CheckpointError>([&] {
      run_on_first_rank(groups[GroupName::kWorld], [&] {
        const std::lock_guard lock(mutex);
        ++num_runs;
        throw FileError("full");
      });
    });
    const std::lock_guard lock(mutex);
    num_failures += message == "rank 0: full" ? 1 : 0;
  });
  EXPECT_EQ(num_runs, 1);
  EXPECT_EQ(num_failures, 3);
}

}  // namespace
}  // namespace switchyard
