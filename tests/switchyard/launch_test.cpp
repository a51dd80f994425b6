// Runs of `switchyard launch`: several ranks, lost ranks, signals, and what it refuses.
#include <csignal>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "switchyard/launched_ranks.h"
#include "switchyard/training_folder.h"

namespace switchyard {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

class LaunchCommand : public TrainingFolder {
 protected:
  static constexpr const char* kSettings =
      "train.precision=fp64 train.micro_batch_size=1 train.threads=1";

  // `options` of launch, then a run of its own.
  std::string launch(const std::string& options, const std::string& run,
                     const std::string& settings = "") const {
    return fmt::format("launch {} -- {}", options,
                       command(run, fmt::format("{} {}", kSettings, settings)));
  }
  bool has(const std::string& file) const { return fs::exists(folder_ / file); }
};

TEST_F(LaunchCommand, TrainsOnSeveralRanksToTheSameLosses) {
  ASSERT_EQ(train("one", kSettings).exit_code, 0);
  const ProgramResult launched =
      run_program(launch("-n 4", "four", "parallel.tensor_size=2 parallel.expert_size=2"));
  EXPECT_EQ(launched.exit_code, 0) << launched.output;
  EXPECT_THAT(launched.output, HasSubstr("[0] evaluation after step 20: loss "));
  const std::vector<double> expected = losses("one");
  EXPECT_THAT(losses("four"), testing::Pointwise(testing::DoubleNear(1e-9), expected));
  EXPECT_EQ(expected.size(), 20U);
}

TEST_F(LaunchCommand, TrainsOverSeveralMachines) {
  const std::string options =
      fmt::format("-n 1 --nodes 2 --port {} --node-rank ", 20000 + getpid() % 10000);
  LaunchedRanks second(launch(options + "1", "run"));
  LaunchedRanks first(launch(options + "0", "run"));
  EXPECT_EQ(first.wait(), ProcessEnd{}) << first.output();
  EXPECT_EQ(second.wait(), ProcessEnd{}) << second.output();
  EXPECT_EQ(losses("run").size(), 20U);
}

TEST_F(LaunchCommand, RefusesMachinesWithOtherSettings) {
  const std::string options =
      fmt::format("-n 1 --nodes 2 --port {} --node-rank ", 20000 + getpid() % 10000);
  LaunchedRanks second(launch(options + "1", "run", "optimizer.lr=2e-2"));
  LaunchedRanks first(launch(options + "0", "run"));
  for (LaunchedRanks* ranks : {&first, &second}) {
    EXPECT_EQ(ranks->wait().code, code(ExitCode::kRefusedConfig));
    EXPECT_THAT(ranks->output(),
                HasSubstr("error: rank 1 has other settings: \"optimizer.lr: 0.02\" there, "
                          "\"optimizer.lr: 0.01\" on rank 0"));
  }
}

TEST_F(LaunchCommand, StopsAllAfterTheStepWhenOneRankIsAskedTo) {
  ASSERT_EQ(run_program(launch("-n 2", "whole")).exit_code, 0);
  LaunchedRanks ranks(launch("-n 2", "stopped"));
  ASSERT_TRUE(ranks.wait_until([&] { return has("stopped/metrics.jsonl"); })) << ranks.output();
  kill(ranks.ranks().at(1), SIGTERM);
  EXPECT_EQ(ranks.wait().code, code(ExitCode::kStoppedSaved)) << ranks.output();
  EXPECT_TRUE(has("stopped/checkpoints/latest"));
  EXPECT_FALSE(has("stopped/checkpoints/step_20"));
  EXPECT_EQ(run_program(launch("-n 2", "stopped")).exit_code, 0);
  expect_equal_runs(folder_ / "whole", folder_ / "stopped", 20, 2);
}

TEST_F(LaunchCommand, StopsAllWhenItIsAskedToItself) {
  for (const int signal : {SIGTERM, SIGINT}) {
    const std::string run = fmt::format("stopped_{}", signal);
    LaunchedRanks ranks(launch("-n 2 --restarts 5", run));
    ASSERT_TRUE(ranks.wait_until([&] { return has(run + "/metrics.jsonl"); })) << ranks.output();
    kill(ranks.launcher(), signal);
    EXPECT_EQ(ranks.wait().code, code(ExitCode::kStoppedSaved)) << ranks.output();
    EXPECT_TRUE(has(run + "/checkpoints/latest"));
  }
}

TEST_F(LaunchCommand, SaysWhoWasKilledAndFromWhereToGoOn) {
  LaunchedRanks ranks(launch("-n 2", "run", "checkpoint.every=4 train.steps=100000"));
  ASSERT_TRUE(ranks.wait_until([&] { return has("run/checkpoints/step_4"); })) << ranks.output();
  kill(ranks.ranks().at(1), SIGKILL);
  EXPECT_EQ(ranks.wait().code, code(ExitCode::kLostPeer));
  EXPECT_THAT(ranks.output(), HasSubstr("the connection to rank 1 is lost"));
  EXPECT_THAT(ranks.output(), HasSubstr("error: launch: rank 1 (process "));
  EXPECT_THAT(ranks.output(), HasSubstr("was killed by signal 9 (Killed). The same command goes on "
                                        "from checkpoint step_"));
}

TEST_F(LaunchCommand, GoesOnWithFewerRanksAndTheSameBatch) {
  ASSERT_EQ(train("one", kSettings).exit_code, 0);
  // 3 ranks would not divide a batch of 4.
  LaunchedRanks ranks(
      launch("-n 4 --restarts 5 --same-failures 1 --min-ranks 1", "run", "checkpoint.every=4"));
  ASSERT_TRUE(ranks.wait_until([&] { return has("run/checkpoints/step_4"); })) << ranks.output();
  kill(ranks.ranks().at(3), SIGKILL);
  EXPECT_EQ(ranks.wait(), ProcessEnd{}) << ranks.output();
  EXPECT_THAT(ranks.output(), HasSubstr("launch: restart 1 of 5: 2 ranks, from checkpoint step_"));
  const std::vector<double> expected = losses("one");
  EXPECT_THAT(losses("run"), testing::Pointwise(testing::DoubleNear(1e-9), expected));
}

TEST_F(LaunchCommand, RefusesBeforeAnythingIsStarted) {
  const auto refusal = [&](const std::string& words) {
    const ProgramResult refused = run_program(words);
    EXPECT_EQ(refused.exit_code, code(ExitCode::kRefusedConfig)) << words;
    EXPECT_EQ(std::count(refused.output.begin(), refused.output.end(), '\n'), 1) << refused.output;
    return refused.output;
  };
  EXPECT_THAT(refusal(launch("-n 3", "run", "parallel.tensor_size=2")),
              HasSubstr("the number of ranks (3) must be a multiple of parallel.tensor_size"));
  EXPECT_THAT(refusal("launch -n 2 -- eval run"), HasSubstr("only train runs on several ranks"));
  EXPECT_THAT(refusal(launch("-n 2 --restarts 1 --min-ranks 3", "run")),
              HasSubstr("--min-ranks (3) must not exceed -n (2)"));
  EXPECT_THAT(refusal(launch("-n 2 --min-ranks 1", "run")),
              HasSubstr("--min-ranks needs --restarts"));
  EXPECT_THAT(refusal(launch("-n 2 --nodes 2", "run")), HasSubstr("--port must be given"));
  EXPECT_THAT(refusal(launch("-n 2 --nodes 2 --node-rank 2 --port 20000", "run")),
              HasSubstr("--node-rank (2) must be below --nodes (2)"));
  EXPECT_THAT(refusal(fmt::format("launch -n 2 -- train {} --accept", path("run.yaml"))),
              HasSubstr("switchyard launch ... -- train: "));
  EXPECT_FALSE(has("run"));
}

}  // namespace
}  // namespace switchyard
