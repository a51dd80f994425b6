// Ranks that are small shell scripts.
#include "supervise/supervised_run.h"

#include <chrono>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <thread>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "base/error.h"
#include "supervise/attempt.h"

namespace switchyard {
namespace {

using testing::HasSubstr;
namespace fs = std::filesystem;

std::string read(const fs::path& path) {
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

class SupervisedRunTest : public testing::Test {
 protected:
  SupervisedRunTest()
      : folder_(fs::path(testing::TempDir()) /
                fmt::format("supervise_{}_{}", getpid(),
                            testing::UnitTest::GetInstance()->current_test_info()->name())) {
    fs::remove_all(folder_);
    fs::create_directories(folder_);
  }
  ~SupervisedRunTest() override { fs::remove_all(folder_); }

  // Each rank runs `script`, with the variables of its launch and a folder $F.
  SupervisedRun run_of(int64_t num_ranks, const std::string& script) const {
    return {.program = "/bin/sh",
            .command = {.num_ranks = num_ranks, .words = words_of(script)},
            .address = "127.0.0.1",
            .port = 1,
            .log_folder = (folder_ / "logs").string(),
            .grace = std::chrono::milliseconds(500)};
  }
  std::vector<std::string> words_of(const std::string& script) const {
    return {"sh", "-c", "F=" + folder_.string() + "; " + script};
  }

  // The exit code, and what is said when it gives up.
  std::pair<int, std::string> result_of(const SupervisedRun& run) {
    try {
      return {static_cast<int>(run_supervised(run, inbox_)), ""};
    } catch (const Error& error) {
      return {static_cast<int>(error.exit_code()), error.what()};
    }
  }
  std::string log(int64_t rank) const {
    return read(folder_ / fmt::format("logs/rank_{}.log", rank));
  }

  SignalInbox inbox_;
  fs::path folder_;
};

TEST_F(SupervisedRunTest, TellsEachRankWhoItIs) {
  SupervisedRun run =
      run_of(2,
             "echo $RANK of $WORLD_SIZE, here $LOCAL_RANK of $LOCAL_WORLD_SIZE, node "
             "$GROUP_RANK, $MASTER_ADDR:$MASTER_PORT $TORCHELASTIC_RESTART_COUNT");
  run.num_nodes = 3;
  run.node = 2;
  EXPECT_EQ(result_of(run), std::pair(0, std::string()));
  EXPECT_EQ(log(4), "--- attempt 0\n4 of 6, here 0 of 2, node 2, 127.0.0.1:1 0\n");
  EXPECT_EQ(log(5), "--- attempt 0\n5 of 6, here 1 of 2, node 2, 127.0.0.1:1 0\n");
}

TEST_F(SupervisedRunTest, PutsTheRankBeforeEachLine) {
  SupervisedRun run = run_of(1, "echo one; echo two >&2; printf three");
  run.log_folder = "";
  testing::internal::CaptureStdout();
  testing::internal::CaptureStderr();
  EXPECT_EQ(result_of(run).first, 0);
  EXPECT_EQ(testing::internal::GetCapturedStdout(), "[0] one\n[0] three\n");
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "[0] two\n");
}

TEST_F(SupervisedRunTest, EndsWithTheCodeOfTheFirstCause) {
  // Rank 1 has an error of its own, the others lose a peer, before it.
  const auto [code, text] = result_of(
      run_of(3, "if [ $RANK = 1 ]; then sleep 0.2; echo 'error: no file' >&2; exit 3; fi; exit 4"));
  EXPECT_EQ(code, 3);
  EXPECT_THAT(text, HasSubstr("launch: rank 1 (process "));
  EXPECT_THAT(text, HasSubstr(") ended with code 3: no file. The ranks are not started again"));
}

TEST_F(SupervisedRunTest, ReportsAKilledRankAsALostPeer) {
  const auto [code, text] = result_of(run_of(2, "[ $RANK = 1 ] && kill -9 $$; sleep 0.1; exit 4"));
  EXPECT_EQ(code, 4);
  EXPECT_THAT(text, HasSubstr("launch: rank 1 "));
  EXPECT_THAT(text,
              HasSubstr("was killed by signal 9 (Killed). The same command goes on from the "
                        "beginning: there is no checkpoint yet; --restarts lets that happen"));
}

TEST_F(SupervisedRunTest, KillsWhoDoesNotEndAfterAFailure) {
  const auto start = std::chrono::steady_clock::now();
  const auto [code, text] = result_of(run_of(3, "[ $RANK = 2 ] && sleep 60; exit 4"));
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(20));
  EXPECT_EQ(code, 4);
  EXPECT_THAT(text, HasSubstr("launch: rank 2 "));
  EXPECT_THAT(text, HasSubstr(" hung: it did not end after the others had"));
}

TEST_F(SupervisedRunTest, StartsAllRanksAgain) {
  SupervisedRun run = run_of(2,
                             "echo try $TORCHELASTIC_RESTART_COUNT; "
                             "[ $RANK$TORCHELASTIC_RESTART_COUNT = 10 ] && kill -9 $$; exit 0");
  run.most_restarts = 3;
  EXPECT_EQ(result_of(run), std::pair(0, std::string()));
  EXPECT_EQ(log(0), "--- attempt 0\ntry 0\n--- attempt 1\ntry 1\n");
  EXPECT_EQ(log(1), log(0));
}

TEST_F(SupervisedRunTest, StopsAfterFailuresAlike) {
  SupervisedRun run = run_of(2, "echo x >> $F/count; echo 'error: broken' >&2; exit 1");
  run.most_restarts = 10;
  run.newest_checkpoint = [] { return "step_7"; };
  const auto [code, text] = result_of(run);
  EXPECT_EQ(code, 1);
  EXPECT_THAT(text, HasSubstr("ended with code 1: broken. It was the same "));
  EXPECT_THAT(text, HasSubstr("with no newer checkpoint than step_7"));
}

TEST_F(SupervisedRunTest, UsesUpItsRestarts) {
  SupervisedRun run = run_of(1, "echo x >> $F/count; exit 1");
  run.most_restarts = 2;
  int step = 0;
  run.newest_checkpoint = [&] { return fmt::format("step_{}", ++step); };
  const auto [code, text] = result_of(run);
  EXPECT_EQ(code, 1);
  EXPECT_THAT(text, HasSubstr("All 2 restarts (--restarts) are used up. The same command goes on "
                              "from checkpoint step_3"));
  EXPECT_EQ(read(folder_ / "count"), "x\nx\nx\n");
}

TEST_F(SupervisedRunTest, GoesOnWithFewerRanksWhereItMay) {
  SupervisedRun run = run_of(3, "[ $RANK = 2 ] && exit 1; exit 0");
  run.most_restarts = 10;
  run.most_alike = 2;
  run.fewer_ranks = [&](int64_t num_ranks) -> std::optional<RankCommand> {
    EXPECT_EQ(num_ranks, 3);
    return RankCommand{.num_ranks = 2, .words = words_of("echo fewer $WORLD_SIZE")};
  };
  EXPECT_EQ(result_of(run), std::pair(0, std::string()));
  EXPECT_THAT(log(1), HasSubstr("--- attempt 2\nfewer 2\n"));
}

TEST_F(SupervisedRunTest, PassesASignalOnAndEndsWithTheCodeForIt) {
  const SupervisedRun run =
      run_of(2, "trap 'exit 6' TERM; echo > $F/ready_$RANK; while :; do sleep 0.05; done");
  std::thread sender([&] {
    while (!fs::exists(folder_ / "ready_0") || !fs::exists(folder_ / "ready_1")) {
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    kill(getpid(), SIGTERM);
  });
  EXPECT_EQ(result_of(run), std::pair(6, std::string()));
  sender.join();
}

TEST_F(SupervisedRunTest, EndsByTheSignalWhenRanksWereNotReadyForIt) {
  const SupervisedRun run = run_of(2, "echo > $F/ready_$RANK; exec sleep 60");
  EXPECT_EXIT(
      {
        std::thread sender([&] {
          while (!fs::exists(folder_ / "ready_0") || !fs::exists(folder_ / "ready_1")) {
            std::this_thread::sleep_for(std::chrono::milliseconds(10));
          }
          kill(getpid(), SIGTERM);
        });
        sender.detach();
        result_of(run);
      },
      testing::KilledBySignal(SIGTERM), "");
}

TEST_F(SupervisedRunTest, KillsTheRanksAtASecondSignal) {
  const SupervisedRun run =
      run_of(1, "trap 'echo > $F/heard' TERM; echo > $F/ready; while :; do sleep 0.05; done");
  EXPECT_EXIT(
      {
        std::thread sender([&] {
          for (const char* file : {"ready", "heard"}) {
            while (!fs::exists(folder_ / file)) {
              std::this_thread::sleep_for(std::chrono::milliseconds(10));
            }
            kill(getpid(), SIGTERM);
          }
        });
        sender.detach();
        result_of(run);
      },
      testing::KilledBySignal(SIGTERM), "");
}

TEST_F(SupervisedRunTest, LeavesNobodyBehindWhenItIsKilled) {
  const std::string script = "echo $$ > $F/process; exec sleep 300";
  const SupervisedRun run = run_of(1, script);
  EXPECT_EXIT(
      {
        std::thread killer([&] {
          while (read(folder_ / "process").empty()) {
            std::this_thread::sleep_for(std::chrono::milliseconds(10));
          }
          kill(getpid(), SIGKILL);
        });
        killer.detach();
        result_of(run);
      },
      testing::KilledBySignal(SIGKILL), "");
  const pid_t orphan = std::stoi(read(folder_ / "process"));
  bool is_gone = false;
  for (int i = 0; i < 200 && !is_gone; ++i) {
    const std::string status = read(fmt::format("/proc/{}/status", orphan));
    is_gone = status.empty() || status.find("State:\tZ") != std::string::npos;
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  EXPECT_TRUE(is_gone);
}

TEST(Attempt, AProgramThatIsNotThereEndsWith127) {
  SignalInbox inbox;
  RankOutput output("");
  const Attempt attempt = run_attempt({.program = "/nowhere", .words = {"x"}, .variables = {{}}},
                                      output, inbox, std::chrono::seconds(1));
  ASSERT_NE(attempt.first_cause(), nullptr);
  EXPECT_EQ(attempt.first_cause()->end.code, 127);
}

TEST(LineCutter, GivesWholeLines) {
  std::vector<std::string> lines;
  LineCutter cutter;
  const auto sink = [&](std::string_view line) { lines.emplace_back(line); };
  cutter.add("on", sink);
  EXPECT_TRUE(lines.empty());
  cutter.add("e\n\ntwo\nthr", sink);
  cutter.add("ee", sink);
  cutter.finish(sink);
  cutter.finish(sink);
  EXPECT_EQ(lines, (std::vector<std::string>{"one", "", "two", "three"}));
}

}  // namespace
}  // namespace switchyard
