#include "parallel/launch.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include <arpa/inet.h>
#include <fcntl.h>
#include <fmt/ranges.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include "base/error.h"

namespace switchyard {
namespace {

using Clock = std::chrono::steady_clock;
using testing::HasSubstr;
using Variables = std::map<std::string, std::string>;

constexpr Site kSite{"test.site"};

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

MeshShape world_of(int64_t size) {
  MeshShape shape;
  shape.world_size = size;
  return shape;
}

// ---- reading the environment ----

const char* const kLauncherVariables[] = {"RANK",
                                          "WORLD_SIZE",
                                          "LOCAL_RANK",
                                          "MASTER_ADDR",
                                          "MASTER_PORT",
                                          "TORCHELASTIC_USE_AGENT_STORE",
                                          "TORCHELASTIC_RESTART_COUNT",
                                          "GROUP_RANK",
                                          "SLURM_NODEID",
                                          "SLURM_PROCID",
                                          "SLURM_LOCALID",
                                          "SLURM_STEP_NUM_TASKS",
                                          "SLURM_STEP_NODELIST",
                                          "SLURM_NODELIST",
                                          "OMPI_COMM_WORLD_RANK",
                                          "OMPI_COMM_WORLD_SIZE",
                                          "OMPI_COMM_WORLD_LOCAL_RANK",
                                          "OMPI_COMM_WORLD_LOCAL_SIZE"};

void set_only(const Variables& variables) {
  for (const char* name : kLauncherVariables) {
    unsetenv(name);
  }
  for (const auto& [name, value] : variables) {
    setenv(name.c_str(), value.c_str(), 1);
  }
}

LaunchEnvironment read_from(const Variables& variables) {
  set_only(variables);
  return read_launch_environment();
}

std::string refusal(const Variables& variables) {
  try {
    read_from(variables);
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "accepted";
}

TEST(LaunchEnvironment, IsOneRankWithoutALauncher) {
  const auto environment = read_from({});
  EXPECT_EQ(environment.rank, 0);
  EXPECT_EQ(environment.world_size, 1);
  EXPECT_EQ(environment.local_rank, 0);
  EXPECT_EQ(environment.launcher, "none");
}

TEST(LaunchEnvironment, ReadsTorchrun) {
  const auto environment = read_from({{"RANK", "5"},
                                      {"WORLD_SIZE", "8"},
                                      {"LOCAL_RANK", "1"},
                                      {"MASTER_ADDR", "node0"},
                                      {"MASTER_PORT", "1234"}});
  EXPECT_EQ(environment.rank, 5);
  EXPECT_EQ(environment.world_size, 8);
  EXPECT_EQ(environment.local_rank, 1);
  EXPECT_EQ(environment.master_address, "node0");
  EXPECT_EQ(environment.master_port, 1234);
  EXPECT_EQ(environment.launcher, "torchrun");
  EXPECT_FALSE(environment.launcher_serves_store);
  EXPECT_EQ(environment.attempt, 0);
}

TEST(LaunchEnvironment, LeavesTheStoreToTorchrunWhereItServesOne) {
  const auto environment = read_from({{"RANK", "0"},
                                      {"WORLD_SIZE", "2"},
                                      {"TORCHELASTIC_USE_AGENT_STORE", "True"},
                                      {"TORCHELASTIC_RESTART_COUNT", "3"}});
  EXPECT_TRUE(environment.launcher_serves_store);
  EXPECT_EQ(environment.attempt, 3);
  EXPECT_FALSE(
      read_from({{"RANK", "0"}, {"WORLD_SIZE", "2"}, {"TORCHELASTIC_USE_AGENT_STORE", "False"}})
          .launcher_serves_store);
}

TEST(LaunchEnvironment, TellsMachinesApart) {
  EXPECT_EQ(read_from({{"RANK", "0"}, {"WORLD_SIZE", "2"}, {"GROUP_RANK", "3"}}).node, "3");
  EXPECT_EQ(
      read_from({{"SLURM_PROCID", "0"}, {"SLURM_STEP_NUM_TASKS", "1"}, {"SLURM_NODEID", "2"}}).node,
      "2");
  EXPECT_NE(read_from({{"RANK", "0"}, {"WORLD_SIZE", "2"}}).node, "") << "the host's name";
}

TEST(LaunchEnvironment, FillsInWhatRanksStartedByHandLeaveOut) {
  const auto environment = read_from({{"RANK", "1"}, {"WORLD_SIZE", "2"}});
  EXPECT_EQ(environment.local_rank, 1);
  EXPECT_EQ(environment.master_address, "127.0.0.1");
  EXPECT_EQ(environment.master_port, 29500);
}

TEST(LaunchEnvironment, ReadsSlurm) {
  const auto environment = read_from({{"SLURM_PROCID", "3"},
                                      {"SLURM_STEP_NUM_TASKS", "4"},
                                      {"SLURM_LOCALID", "1"},
                                      {"SLURM_STEP_NODELIST", "gpu[03-05,09],login1"}});
  EXPECT_EQ(environment.rank, 3);
  EXPECT_EQ(environment.world_size, 4);
  EXPECT_EQ(environment.local_rank, 1);
  EXPECT_EQ(environment.master_address, "gpu03");
  EXPECT_EQ(environment.launcher, "Slurm");
  // A shell inside an allocation is no task of a step: one rank.
  EXPECT_EQ(read_from({{"SLURM_PROCID", "0"}}).launcher, "none");
}

TEST(LaunchEnvironment, FindsTheFirstNodeOfASlurmList) {
  const auto first = [](const std::string& list) {
    return read_from({{"SLURM_PROCID", "0"},
                      {"SLURM_STEP_NUM_TASKS", "1"},
                      {"SLURM_STEP_NODELIST", list}})
        .master_address;
  };
  EXPECT_EQ(first("node7"), "node7");
  EXPECT_EQ(first("node7,node8"), "node7");
  EXPECT_EQ(first("node[1,3-4]"), "node1");
  EXPECT_EQ(first("node[12]"), "node12");
  EXPECT_EQ(first("a-1,node[3-4]"), "a-1");
  EXPECT_EQ(first("rack-2-node[003-010]"), "rack-2-node003");
}

TEST(LaunchEnvironment, ReadsOpenMpi) {
  const auto environment = read_from({{"OMPI_COMM_WORLD_RANK", "1"},
                                      {"OMPI_COMM_WORLD_SIZE", "2"},
                                      {"OMPI_COMM_WORLD_LOCAL_RANK", "1"},
                                      {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"}});
  EXPECT_EQ(environment.rank, 1);
  EXPECT_EQ(environment.world_size, 2);
  EXPECT_EQ(environment.local_rank, 1);
  EXPECT_EQ(environment.launcher, "Open MPI");
}

TEST(LaunchEnvironment, WantsAnAddressForOpenMpiOnSeveralNodes) {
  Variables variables{{"OMPI_COMM_WORLD_RANK", "0"},
                      {"OMPI_COMM_WORLD_SIZE", "4"},
                      {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"}};
  EXPECT_EQ(refusal(variables),
            "Open MPI started ranks on several nodes and does not say where rank 0 is: set "
            "MASTER_ADDR to the address of its node (mpirun -x MASTER_ADDR=...)");
  variables["MASTER_ADDR"] = "node0";
  EXPECT_EQ(read_from(variables).master_address, "node0");
}

TEST(LaunchEnvironment, NamesTheVariableThatIsMissing) {
  for (const auto& [present, missing] : std::vector<std::pair<std::string, std::string>>{
           {"RANK", "WORLD_SIZE"},
           {"WORLD_SIZE", "RANK"},
           {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"}}) {
    EXPECT_EQ(refusal({{present, "1"}}),
              "the environment variable " + missing +
                  " is missing although its launcher's others are set: start the ranks with "
                  "torchrun, srun or mpirun, or unset them all");
  }
}

TEST(LaunchEnvironment, NamesTheVariableThatIsNoNumber) {
  for (const std::string value : {"two", "", "1.5", "-1", "3x", " 3", "99999999999999999999"}) {
    EXPECT_EQ(refusal({{"RANK", value}, {"WORLD_SIZE", "4"}}),
              "the environment variable RANK is \"" + value + "\": a number from 0 up is expected");
  }
  EXPECT_EQ(refusal({{"RANK", "0"}, {"WORLD_SIZE", "0"}}),
            "the environment variable WORLD_SIZE is \"0\": a number from 1 up is expected");
  for (const std::string port : {"0", "65536", "http"}) {
    EXPECT_EQ(refusal({{"RANK", "0"}, {"WORLD_SIZE", "1"}, {"MASTER_PORT", port}}),
              "the environment variable MASTER_PORT is \"" + port +
                  "\": a number from 1 to 65535 is expected");
  }
}

TEST(LaunchEnvironment, RefusesARankOutsideOfTheWorld) {
  EXPECT_EQ(refusal({{"RANK", "4"}, {"WORLD_SIZE", "4"}}),
            "torchrun says rank 4 of 4 ranks: ranks count from 0");
  EXPECT_EQ(refusal({{"SLURM_PROCID", "2"}, {"SLURM_STEP_NUM_TASKS", "2"}}),
            "Slurm says rank 2 of 2 ranks: ranks count from 0");
}

// ---- ranks as threads ----

TEST(RunRanks, RunsTheBodyOncePerRank) {
  std::vector<std::atomic<int>> runs(6);
  MeshShape shape = world_of(6);
  shape.tensor = 2;
  run_ranks(shape, [&](Groups& groups) {
    ++runs[static_cast<size_t>(groups.rank())];
    EXPECT_EQ(groups.mesh().world_size(), 6);
    EXPECT_EQ(groups.tensor().rank(), groups.rank() % 2);
    EXPECT_EQ(at::get_num_threads(), 1);
  });
  for (const auto& count : runs) {
    EXPECT_EQ(count, 1);
  }
}

// While it lives, all processors are busy several times over, so that threads start far apart.
class BusyProcessors {
 public:
  BusyProcessors() {
    for (unsigned i = 0; i < 4 * std::thread::hardware_concurrency(); ++i) {
      threads_.emplace_back([this] {
        while (!is_over_) {
        }
      });
    }
  }
  ~BusyProcessors() {
    is_over_ = true;
    for (std::thread& thread : threads_) {
      thread.join();
    }
  }
  BusyProcessors(const BusyProcessors&) = delete;
  BusyProcessors& operator=(const BusyProcessors&) = delete;

 private:
  std::atomic<bool> is_over_ = false;
  std::vector<std::thread> threads_;
};

TEST(RunRanks, LetsARankLeaveWithoutAWord) {
  // One that leaves while a peer still connects would break the peer.
  const BusyProcessors busy;
  for (int i = 0; i < 20; ++i) {
    std::atomic<int> num_ranks = 0;
    run_ranks({.world_size = 4}, [&](Groups&) { ++num_ranks; });
    ASSERT_EQ(num_ranks, 4);
  }
}

TEST(RunRanks, LeavesTheNumberOfThreadsAsItWas) {
  at::set_num_threads(2);
  run_ranks(world_of(2), [](Groups&) {});
  EXPECT_EQ(at::get_num_threads(), 2);
  std::thread([] { EXPECT_EQ(at::get_num_threads(), 2); }).join();
}

TEST(RunRanks, ThrowsTheFirstErrorSoonAfterIt) {
  for (const int64_t culprit : {0, 3}) {
    for (const int repeat : {0, 1, 2, 3, 4}) {
      const auto start = Clock::now();
      try {
        run_ranks(
            world_of(4),
            [&](Groups& groups) {
              for (int step = 0;; ++step) {
                check<ConfigError>(groups.rank() != culprit || step < repeat,
                                   "the problem of rank {}", culprit);
                groups[GroupName::kWorld].all_reduce(at::ones({10}), kSite);
              }
            },
            std::chrono::seconds(60));
        FAIL() << "nothing thrown";
      } catch (const Error& error) {
        EXPECT_EQ(error.what(), fmt::format("the problem of rank {}", culprit));
      }
      EXPECT_LT(seconds_since(start), 20) << "the others waited for the timeout";
    }
  }
}

TEST(RunRanks, RefusesAMeshThatCannotBe) {
  MeshShape shape = world_of(4);
  shape.tensor = 3;
  EXPECT_THROW(run_ranks(shape, [](Groups&) { FAIL() << "no rank should run"; }), ConfigError);
}

TEST(RunRanks, RaisesTheLimitOfOpenFiles) {
  rlimit limit{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &limit), 0);
  rlimit low = limit;
  low.rlim_cur = std::min<rlim_t>(64, limit.rlim_max);
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &low), 0);
  // 8 ranks need more than 64 files.
  run_ranks(world_of(8), [](Groups& groups) { groups[GroupName::kWorld].barrier(kSite); });
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &limit), 0);
  EXPECT_EQ(limit.rlim_cur, limit.rlim_max);
}

// ---- ranks as processes ----

// What a started rank does; it prints a line per event and what it throws, and ends with its code.
using Scenario = std::function<void(const LaunchEnvironment& environment, int64_t timeout_ms)>;

std::unique_ptr<Groups> connect_all(const LaunchEnvironment& environment, int64_t timeout_ms) {
  return connect(environment, world_of(environment.world_size),
                 std::chrono::milliseconds(timeout_ms));
}

void say(const std::string& line) {
  std::printf("%s\n", line.c_str());
  std::fflush(stdout);
}

const std::map<std::string, Scenario>& scenarios() {
  static const std::map<std::string, Scenario> all = {
      {"sum",
       [](const LaunchEnvironment& environment, int64_t timeout_ms) {
         MeshShape shape = world_of(environment.world_size);
         shape.tensor = 2;
         const auto groups = connect(environment, shape, std::chrono::milliseconds(timeout_ms));
         at::Tensor in_world = at::full({100'000}, environment.rank + 1, at::kLong);
         (*groups)[GroupName::kWorld].all_reduce(in_world, kSite);
         at::Tensor in_pair = at::full({1}, environment.rank + 1, at::kLong);
         groups->tensor().all_reduce(in_pair, kSite);
         say(fmt::format("world {} pair {}", in_world[99'999].item<int64_t>(),
                         in_pair.item<int64_t>()));
       }},
      {"loop",
       [](const LaunchEnvironment& environment, int64_t timeout_ms) {
         const auto groups = connect_all(environment, timeout_ms);
         for (int step = 0;; ++step) {
           (*groups)[GroupName::kWorld].all_reduce(at::ones({50'000}), {"loop.sum"});
           if (step == 10) {
             say("looping");
           }
         }
       }},
      {"other_call",
       [](const LaunchEnvironment& environment, int64_t timeout_ms) {
         const auto groups = connect_all(environment, timeout_ms);
         const Group& world = (*groups)[GroupName::kWorld];
         if (environment.rank == 1) {
           world.broadcast(at::ones({4}), 0, {"weights"});
         } else {
           world.all_reduce(at::ones({4}), {"gradients"});
         }
       }},
      {"own_error",
       [](const LaunchEnvironment& environment, int64_t timeout_ms) {
         const auto groups = connect_all(environment, timeout_ms);
         (*groups)[GroupName::kWorld].barrier(kSite);
         check<FileError>(environment.rank != 1, "no such file");
         (*groups)[GroupName::kWorld].all_reduce(at::ones({4}), {"gradients"});
       }},
      {"nodes",
       [](const LaunchEnvironment& environment, int64_t timeout_ms) {
         const auto groups = connect_all(environment, timeout_ms);
         say(fmt::format("nodes {}", fmt::join(groups->nodes(), " ")));
       }},
      {"wrong_layout",
       [](const LaunchEnvironment& environment, int64_t timeout_ms) {
         connect(environment, world_of(4), std::chrono::milliseconds(timeout_ms));
       }},
  };
  return all;
}

int run_scenario(const std::string& name, const std::string& timeout_ms) {
  try {
    scenarios().at(name)(read_launch_environment(), std::stoll(timeout_ms));
    return 0;
  } catch (const Error& error) {
    say(error.what());
    return static_cast<int>(error.exit_code());
  } catch (const std::exception& error) {
    say(std::string("not an error of ours: ") + error.what());
    return 1;
  }
}

// Below the range from which the system gives out ports by itself, so that none is taken between
// the look here and its use.
uint16_t free_port() {
  static auto next = static_cast<uint16_t>(12'000 + getpid() % 8'000);
  for (;; ++next) {
    const int socket_file = socket(AF_INET, SOCK_STREAM, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_ANY);
    address.sin_port = htons(next);
    const bool is_free =
        bind(socket_file, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0;
    close(socket_file);
    if (is_free) {
      return next++;
    }
  }
}

// This program again, as one rank of a scenario.
class RankProcess {
 public:
  RankProcess(const std::string& scenario, int64_t timeout_ms, const Variables& variables) {
    int ends[2];
    EXPECT_EQ(pipe2(ends, O_CLOEXEC), 0);
    const std::string timeout = std::to_string(timeout_ms);
    process_ = fork();
    if (process_ == 0) {
      set_only(variables);
      dup2(ends[1], STDOUT_FILENO);
      dup2(ends[1], STDERR_FILENO);
      execl("/proc/self/exe", "launch_test", "--scenario", scenario.c_str(), timeout.c_str(),
            nullptr);
      std::_Exit(127);
    }
    close(ends[1]);
    output_file_ = ends[0];
  }
  RankProcess(const RankProcess&) = delete;
  RankProcess& operator=(const RankProcess&) = delete;
  ~RankProcess() {
    if (!has_ended_) {
      signal(SIGKILL);
      waitpid(process_, nullptr, 0);
    }
    close(output_file_);
  }

  void signal(int number) const { kill(process_, number); }

  // Reads until the text has been printed; false when it ended or the time was up before.
  bool wait_for(const std::string& text) {
    while (output_.find(text) == std::string::npos) {
      if (!read_some()) {
        return false;
      }
    }
    return true;
  }

  // Its exit code, or -1 when a signal ended it or it had to be killed after a minute.
  int exit_code() {
    while (read_some()) {
    }
    int status = 0;
    const bool is_late = seconds_since(start_) > kLimit;
    if (is_late) {
      signal(SIGKILL);
    }
    waitpid(process_, &status, 0);
    has_ended_ = true;
    return is_late || !WIFEXITED(status) ? -1 : WEXITSTATUS(status);
  }

  const std::string& output() const { return output_; }

 private:
  static constexpr double kLimit = 60;

  bool read_some() {
    constexpr int kPollMs = 100;
    while (seconds_since(start_) < kLimit) {
      pollfd wanted{output_file_, POLLIN, 0};
      if (poll(&wanted, 1, kPollMs) > 0) {
        char buffer[4096];
        const ssize_t count = read(output_file_, buffer, sizeof(buffer));
        output_.append(buffer, static_cast<size_t>(std::max<ssize_t>(count, 0)));
        return count > 0;
      }
    }
    return false;
  }

  pid_t process_ = 0;
  int output_file_ = -1;
  std::string output_;
  bool has_ended_ = false;
  Clock::time_point start_ = Clock::now();
};

Variables torchrun_variables(int64_t rank, int64_t size, uint16_t port) {
  return {{"RANK", std::to_string(rank)},
          {"WORLD_SIZE", std::to_string(size)},
          {"LOCAL_RANK", std::to_string(rank)},
          {"MASTER_ADDR", "127.0.0.1"},
          {"MASTER_PORT", std::to_string(port)}};
}

std::vector<std::unique_ptr<RankProcess>> start_ranks(const std::string& scenario, int64_t size,
                                                      int64_t timeout_ms) {
  const uint16_t port = free_port();
  std::vector<std::unique_ptr<RankProcess>> ranks;
  for (int64_t rank = 0; rank < size; ++rank) {
    ranks.push_back(
        std::make_unique<RankProcess>(scenario, timeout_ms, torchrun_variables(rank, size, port)));
  }
  return ranks;
}

constexpr int kLostPeer = static_cast<int>(ExitCode::kLostPeer);
constexpr int64_t kPatient = 50'000;  // milliseconds; no test waits for it

TEST(Connect, MeetsOverTorchrunsVariables) {
  const auto ranks = start_ranks("sum", 4, kPatient);
  for (size_t rank = 0; rank < 4; ++rank) {
    EXPECT_EQ(ranks[rank]->exit_code(), 0);
    EXPECT_EQ(ranks[rank]->output(), fmt::format("world 10 pair {}\n", rank < 2 ? 1 + 2 : 3 + 4));
  }
}

TEST(Connect, UsesTheStoreOfTorchrunAgainInEachAttempt) {
  c10d::TCPStoreOptions options;
  options.port = free_port();
  options.isServer = true;
  const auto store = c10::make_intrusive<c10d::TCPStore>("127.0.0.1", options);
  for (const std::string attempt : {"0", "1"}) {
    std::vector<std::unique_ptr<RankProcess>> ranks;
    for (int64_t rank = 0; rank < 2; ++rank) {
      Variables variables = torchrun_variables(rank, 2, options.port);
      variables["TORCHELASTIC_USE_AGENT_STORE"] = "True";
      variables["TORCHELASTIC_RESTART_COUNT"] = attempt;
      ranks.push_back(std::make_unique<RankProcess>("sum", kPatient, variables));
    }
    for (const auto& rank : ranks) {
      EXPECT_EQ(rank->exit_code(), 0);
      EXPECT_EQ(rank->output(), "world 3 pair 3\n");
    }
  }
}

TEST(Connect, ReportsAPeerThatIsKilledInTheMiddle) {
  for (const size_t victim : {size_t{1}, size_t{0}}) {  // rank 0 serves the store
    const auto ranks = start_ranks("loop", 3, kPatient);
    for (const auto& rank : ranks) {
      ASSERT_TRUE(rank->wait_for("looping")) << rank->output();
    }
    const auto start = Clock::now();
    ranks[victim]->signal(SIGKILL);
    EXPECT_EQ(ranks[victim]->exit_code(), -1);
    for (size_t rank = 0; rank < 3; ++rank) {
      if (rank != victim) {
        EXPECT_EQ(ranks[rank]->exit_code(), kLostPeer);
        EXPECT_THAT(
            ranks[rank]->output(),
            HasSubstr(fmt::format("[rank {}: dp {} edp {}] all_reduce \"loop.sum\" over "
                                  "group world of ranks 0 1 2 failed: the connection to rank ",
                                  rank, rank, rank)));
        // With rank 0 goes the store, and with it what the others have to say.
        EXPECT_EQ(ranks[rank]->output().find("; rank 1 is silent: dead, hung or still computing") !=
                      std::string::npos,
                  victim == 1)
            << ranks[rank]->output();
        EXPECT_THAT(ranks[rank]->output(), testing::Not(HasSubstr("frame #")));
      }
    }
    EXPECT_LT(seconds_since(start), 20) << "the others waited for the timeout";
  }
}

TEST(Connect, ReportsAPeerThatHangs) {
  for (const size_t victim : {size_t{1}, size_t{0}}) {
    const auto ranks = start_ranks("loop", 2, 3'000);
    for (const auto& rank : ranks) {
      ASSERT_TRUE(rank->wait_for("looping")) << rank->output();
    }
    ranks[victim]->signal(SIGSTOP);
    RankProcess& other = *ranks[1 - victim];
    EXPECT_EQ(other.exit_code(), kLostPeer);
    EXPECT_THAT(
        other.output(),
        HasSubstr(victim == 1 ? "failed: rank 1 did not take part within 3 s; rank 1 is silent: "
                                "dead, hung or still computing"
                              : "failed: rank 0 did not take part within 3 s. Look for"));
  }
}

TEST(Connect, ReportsAPeerThatMakesAnotherCall) {
  const auto ranks = start_ranks("other_call", 2, 3'000);
  EXPECT_EQ(ranks[0]->exit_code(), kLostPeer);
  EXPECT_EQ(ranks[1]->exit_code(), kLostPeer);
  EXPECT_THAT(ranks[0]->output(), HasSubstr("[rank 0: dp 0 edp 0] all_reduce \"gradients\" over "
                                            "group world of ranks 0 1 failed: "));
  EXPECT_THAT(ranks[1]->output(), HasSubstr("[rank 1: dp 1 edp 1] broadcast \"weights\" over "
                                            "group world of ranks 0 1 failed: "));
  EXPECT_THAT(
      ranks[0]->output(),
      HasSubstr("; rank 1 failed in broadcast \"weights\" over group world, where it lost rank "
                "0. "));
}

TEST(Connect, ReportsAPeerThatLeavesWithAnErrorOfItsOwn) {
  const auto ranks = start_ranks("own_error", 2, kPatient);
  EXPECT_EQ(ranks[1]->exit_code(), static_cast<int>(ExitCode::kBadFile));
  EXPECT_EQ(ranks[1]->output(), "no such file\n");
  EXPECT_EQ(ranks[0]->exit_code(), kLostPeer);
  EXPECT_THAT(ranks[0]->output(), HasSubstr("; rank 1 left after an error of its own. "));
}

TEST(Connect, ReportsARankThatNeverComes) {
  const uint16_t port = free_port();
  RankProcess first("sum", 2'000, torchrun_variables(0, 2, port));
  EXPECT_EQ(first.exit_code(), kLostPeer);
  EXPECT_EQ(first.output(),
            "rank 1 of 2 did not come within 2 s: are they started, and can they reach rank 0?\n");
  RankProcess second("sum", 2'000, torchrun_variables(1, 2, port));
  EXPECT_EQ(second.exit_code(), kLostPeer);
  EXPECT_THAT(second.output(), HasSubstr(fmt::format(
                                   "rank 1 of 2 cannot reach rank 0 at 127.0.0.1:{} within 2 s: is "
                                   "it started, and is this its address and port? (",
                                   port)));
}

TEST(Connect, ReportsAPortThatIsTaken) {
  const uint16_t port = free_port();
  const int socket_file = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_ANY);
  address.sin_port = htons(port);
  ASSERT_EQ(bind(socket_file, reinterpret_cast<const sockaddr*>(&address), sizeof(address)), 0);
  ASSERT_EQ(listen(socket_file, 1), 0);
  const auto start = Clock::now();
  RankProcess alone("sum", kPatient, torchrun_variables(0, 2, port));
  EXPECT_EQ(alone.exit_code(), static_cast<int>(ExitCode::kRefusedConfig));
  EXPECT_THAT(alone.output(),
              HasSubstr(fmt::format("cannot serve port {} for the ranks to meet at: it is in use "
                                    "or reserved; choose another, as with MASTER_PORT (",
                                    port)));
  EXPECT_LT(seconds_since(start), 20);
  close(socket_file);
}

TEST(Connect, TellsWhichRanksShareAMachine) {
  const uint16_t port = free_port();
  std::vector<std::unique_ptr<RankProcess>> ranks;
  for (int64_t rank = 0; rank < 3; ++rank) {
    Variables variables = torchrun_variables(rank, 3, port);
    variables["GROUP_RANK"] = rank == 1 ? "1" : "0";
    ranks.push_back(std::make_unique<RankProcess>("nodes", kPatient, variables));
  }
  for (const auto& rank : ranks) {
    EXPECT_EQ(rank->exit_code(), 0);
    EXPECT_EQ(rank->output(), "nodes 0 1 0\n");
  }
}

TEST(Connect, RefusesALayoutForAnotherNumberOfRanks) {
  RankProcess rank("wrong_layout", kPatient, torchrun_variables(0, 2, free_port()));
  EXPECT_EQ(rank.exit_code(), static_cast<int>(ExitCode::kRefusedConfig));
  EXPECT_EQ(rank.output(), "the layout is for 4 ranks, 2 were started\n");
}

TEST(Connect, IsImmediateForOneRank) {
  const auto groups = connect(LaunchEnvironment{}, MeshShape{}, std::chrono::seconds(1));
  EXPECT_EQ(groups->rank(), 0);
  EXPECT_EQ((*groups)[GroupName::kWorld].size(), 1);
}

}  // namespace
}  // namespace switchyard

int main(int argc, char** argv) {
  if (argc == 4 && std::string(argv[1]) == "--scenario") {
    return switchyard::run_scenario(argv[2], argv[3]);
  }
  testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
