// Ranks and launchers killed at random moments: every run ends with the bytes of one that was left
// alone. SWITCHYARD_FAULTS says how many runs; `make faults` asks for 30.
#include <csignal>
#include <cstdlib>
#include <random>
#include <thread>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "switchyard/launched_ranks.h"
#include "switchyard/training_folder.h"

namespace switchyard {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kNumRanks = 4;
constexpr int64_t kNumSteps = 20;
constexpr int64_t kSaveEvery = 2;

int num_runs() {
  const char* text = std::getenv("SWITCHYARD_FAULTS");
  return text == nullptr ? 4 : std::atoi(text);
}

class Faults : public TrainingFolder {
 protected:
  std::string launch(const std::string& run) const {
    return fmt::format(
        "launch -n {} --restarts 100 -- {}", kNumRanks,
        command(run, fmt::format("parallel.tensor_size=2 parallel.expert_size=2 train.threads=1 "
                                 "checkpoint.every={} parallel.timeout_s=60",
                                 kSaveEvery)));
  }

  int64_t below(int64_t limit) {
    return static_cast<int64_t>(random_() % static_cast<uint64_t>(limit));
  }

  bool is_saving(const std::string& run) const {
    std::error_code none_yet;
    for (const auto& entry : fs::directory_iterator(folder_ / run / "checkpoints", none_yet)) {
      if (entry.path().extension() == ".partial") {
        return true;
      }
    }
    return false;
  }

  // The next moment to strike: while the ranks start, inside a save, or anywhere after one.
  bool wait_for_a_moment(LaunchedRanks& ranks, const std::string& run) {
    const int64_t kind = below(4);
    if (kind == 0) {
      std::this_thread::sleep_for(std::chrono::milliseconds(below(1500)));
      return true;
    }
    const int64_t step = kSaveEvery * (1 + below(kNumSteps / kSaveEvery - 1));
    if (!ranks.wait_until(
            [&] { return fs::exists(folder_ / run / fmt::format("checkpoints/step_{}", step)); })) {
      return false;
    }
    if (kind == 1 || kind == 2) {
      return ranks.wait_until([&] { return is_saving(run); });
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(below(100)));
    return true;
  }

  // Kills a rank, all ranks, or the launcher, with which its ranks go.
  void strike(const LaunchedRanks& ranks, const std::string& run) {
    const std::vector<pid_t> alive = ranks.ranks();
    const int64_t kind = below(5);
    if (kind == 0) {
      kill(ranks.launcher(), SIGKILL);
    } else if (kind == 1) {
      for (const pid_t rank : alive) {
        kill(rank, SIGKILL);
      }
    } else if (!alive.empty()) {
      kill(alive[static_cast<size_t>(below(std::ssize(alive)))], SIGKILL);
    }
    ++num_strikes_;
    num_in_a_save_ += is_saving(run) ? 1 : 0;
  }

  std::mt19937_64 random_{1};
  int num_strikes_ = 0;
  int num_in_a_save_ = 0;
};

TEST_F(Faults, LeaveTheFinalWeightsAsTheyAre) {
  LaunchedRanks whole(launch("whole"));
  ASSERT_EQ(whole.wait(), ProcessEnd{}) << whole.output();
  for (int number = 0; number < num_runs(); ++number) {
    const std::string run = fmt::format("run_{}", number);
    int64_t strikes_left = 1 + below(3);
    std::string output;
    ProcessEnd end{.code = 0, .signal = SIGKILL};
    while (end.signal == SIGKILL) {  // the launcher was struck: start it again
      LaunchedRanks ranks(launch(run));
      while (strikes_left > 0 && wait_for_a_moment(ranks, run)) {
        strike(ranks, run);
        --strikes_left;
      }
      end = ranks.wait();
      output += ranks.output();
    }
    ASSERT_EQ(end, ProcessEnd{}) << output;
    expect_equal_runs(folder_ / "whole", folder_ / run, kNumSteps, kNumRanks);
    ASSERT_FALSE(HasFailure()) << "run " << number << "\n" << output;
    fs::remove_all(folder_ / run);
  }
  fmt::print("{} runs, {} times killed, {} of them inside a save\n", num_runs(), num_strikes_,
             num_in_a_save_);
  EXPECT_GE(num_strikes_, num_runs());
}

}  // namespace
}  // namespace switchyard
