#include "parallel/roll_call.h"

#include <thread>

#include <gtest/gtest.h>

#include <torch/csrc/distributed/c10d/HashStore.hpp>

#include "base/error.h"

namespace switchyard {
namespace {

Introduction rank_of(int64_t rank, int64_t world_size) {
  return {.rank = rank,
          .world_size = world_size,
          .program = "checksum 1",
          .settings = "optimizer.lr: 0.1\ntrain.steps: 5\n",
          .node = "here"};
}

// What each of these ranks says: its machines' numbers, or what it throws.
std::vector<std::string> outcomes_of(const std::vector<Introduction>& ranks) {
  const auto store = c10::make_intrusive<c10d::HashStore>();
  std::vector<std::string> outcomes(ranks.size());
  std::vector<std::thread> threads;
  for (size_t i = 0; i < ranks.size(); ++i) {
    threads.emplace_back([&, i] {
      try {
        for (const int64_t node : call_roll(*store, ranks[i], std::chrono::milliseconds(300))) {
          outcomes[i] += std::to_string(node);
        }
      } catch (const Error& error) {
        outcomes[i] = fmt::format("{}: {}", static_cast<int>(error.exit_code()), error.what());
      }
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  return outcomes;
}

TEST(RollCall, NumbersTheMachines) {
  std::vector<Introduction> ranks;
  for (int64_t rank = 0; rank < 4; ++rank) {
    ranks.push_back(rank_of(rank, 4));
    ranks.back().node = rank % 2 == 0 ? "b" : "a";
  }
  EXPECT_EQ(outcomes_of(ranks), std::vector<std::string>(4, "0101"));
}

TEST(RollCall, NamesRanksThatDoNotCome) {
  const std::string text =
      "4: ranks 1 3 of 4 did not come within 0.3 s: are they started, and can "
      "they reach rank 0?";
  EXPECT_EQ(outcomes_of({rank_of(0, 4), rank_of(2, 4)}), std::vector<std::string>(2, text));
  EXPECT_EQ(outcomes_of({rank_of(1, 2)}).front(),
            "4: rank 0 of 2 did not come within 0.3 s: is it started?");
}

TEST(RollCall, NamesTheSettingThatDiffers) {
  auto ranks = std::vector{rank_of(0, 2), rank_of(1, 2)};
  ranks[1].settings = "optimizer.lr: 0.2\ntrain.steps: 5\n";
  EXPECT_EQ(outcomes_of(ranks),
            std::vector<std::string>(2,
                                     "2: rank 1 has other settings: \"optimizer.lr: 0.2\" there, "
                                     "\"optimizer.lr: 0.1\" on rank 0"));
}

TEST(RollCall, NamesTheRankOfAnotherProgram) {
  auto ranks = std::vector{rank_of(0, 3), rank_of(1, 3), rank_of(2, 3)};
  ranks[2].program = "checksum 2";
  EXPECT_EQ(outcomes_of(ranks),
            std::vector<std::string>(
                3, "2: rank 2 runs another program: checksum 2 there, checksum 1 on rank 0"));
}

TEST(RollCall, NamesTheRankThatWasToldOfAnotherWorld) {
  EXPECT_EQ(outcomes_of({rank_of(0, 2), rank_of(1, 3)}),
            std::vector<std::string>(2, "2: rank 1 was told of 3 ranks, rank 0 of 2"));
  // One that rank 0 does not wait for.
  EXPECT_EQ(outcomes_of({rank_of(0, 2), rank_of(1, 2), rank_of(2, 3)})[2],
            "2: rank 2 was told of 3 ranks, rank 0 of 2");
}

TEST(RollCall, RefusesASecondRankOfTheSameNumber) {
  const auto outcomes = outcomes_of({rank_of(0, 2), rank_of(1, 2), rank_of(1, 2)});
  EXPECT_EQ(std::count(outcomes.begin(), outcomes.end(), "00"), 2);
  EXPECT_EQ(std::count(outcomes.begin(), outcomes.end(),
                       "2: rank 1 was started twice: each process needs a number of its own"),
            1);
}

}  // namespace
}  // namespace switchyard
