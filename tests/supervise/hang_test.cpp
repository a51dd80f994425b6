// A rank that hangs in a call of each kind, under supervision: this program again, as the ranks.
#include <chrono>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <sstream>
#include <string>
#include <thread>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <ATen/ATen.h>

#include "base/error.h"
#include "parallel/launch.h"
#include "supervise/signal_inbox.h"
#include "supervise/supervised_run.h"

namespace switchyard {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;
using testing::HasSubstr;

constexpr int64_t kNumRanks = 3;
constexpr int64_t kVictim = 1;
constexpr Site kSite{"test.site"};
constexpr const char* kOutside = "barrier/outside";  // the victim hangs between two calls

// Each kind of call, by the name in its messages; some are made in more than one way.
const std::map<std::string, std::function<void(const Group&)>>& calls() {
  static const std::map<std::string, std::function<void(const Group&)>> all = {
      {"all_reduce", [](const Group& world) { world.all_reduce(at::ones({10}), kSite); }},
      {"all_reduce/large",
       [](const Group& world) { world.all_reduce(at::ones({1'000'000}), kSite); }},
      {"all_reduce/background",
       [](const Group& world) {
         auto pending = world.start_all_reduce(at::ones({1'000'000}), kSite);
         pending.wait();
       }},
      {"all_gather", [](const Group& world) { world.all_gather(at::ones({2}), 0, 6, kSite); }},
      {"all_gather/background",
       [](const Group& world) {
         const at::Tensor result = at::empty({6});
         world.start_all_gather_rows(at::ones({2}), {2, 2, 2}, result, kSite).wait();
       }},
      {"all_gather/text", [](const Group& world) { world.all_gather_text("text", kSite); }},
      {"reduce_scatter", [](const Group& world) { world.reduce_scatter(at::ones({6}), 0, kSite); }},
      {"all_to_all",
       [](const Group& world) {
         world.all_to_all(at::ones({3, 2}), {1, 1, 1}, {1, 1, 1}, kSite);
       }},
      {"shift",
       [](const Group& world) {
         const at::Tensor received = at::empty({4});
         world.start_shift(at::ones({4}), received, kSite).wait();
       }},
      {"broadcast", [](const Group& world) { world.broadcast(at::ones({4}), kVictim, kSite); }},
      {"transfer",  // around a ring
       [](const Group& world) {
         at::Tensor received = at::empty({4});
         const int64_t size = world.size();
         auto sent = world.start_send(at::ones({4}), (world.rank() + 1) % size, kSite);
         auto arrival = world.start_receive(received, (world.rank() + size - 1) % size, kSite);
         arrival.wait();
         sent.wait();
       }},
      {"barrier", [](const Group& world) { world.barrier(kSite); }},
      {kOutside, [](const Group& world) { world.barrier(kSite); }},
  };
  return all;
}

void hang() {
  std::this_thread::sleep_for(std::chrono::hours(1));
}

// What a rank does: the call three times, in the third of which, or before which, the victim hangs.
int run_rank(const std::string& kind, int64_t timeout_s) {
  try {
    const auto groups = connect(read_launch_environment(), {.world_size = kNumRanks},
                                std::chrono::seconds(timeout_s));
    Ledger& ledger = groups->ledger();
    ledger.set_call_hook_for_test([&](const Site&, std::string_view) {
      if (groups->rank() == kVictim && ledger.position().step == 3) {
        hang();
      }
    });
    for (int64_t step = 1; step <= 3; ++step) {
      if (kind == kOutside && groups->rank() == kVictim && step == 3) {
        hang();
      }
      ledger.position() = {step, 5};
      calls().at(kind)((*groups)[GroupName::kWorld]);
    }
    return 0;
  } catch (const Error& error) {
    fmt::print(stderr, "error: {}\n", error.what());
    return static_cast<int>(error.exit_code());
  }
}

class Hang : public testing::TestWithParam<std::string> {};

TEST_P(Hang, IsNoticedByAllWithinTheTimeout) {
  constexpr int64_t kTimeoutS = 5;
  const std::string& kind = GetParam();
  const fs::path folder = fs::path(testing::TempDir()) / fmt::format("hang_{}", getpid());
  fs::remove_all(folder);
  SignalInbox inbox;
  const MeetingPoint meeting_point(0);
  const auto start = Clock::now();
  try {
    run_supervised({.program = "/proc/self/exe",
                    .command = {.num_ranks = kNumRanks,
                                .words = {"hang_test", "--rank", kind, std::to_string(kTimeoutS)}},
                    .address = "127.0.0.1",
                    .port = meeting_point.port(),
                    .log_folder = folder.string()},
                   inbox);
    ADD_FAILURE() << "nothing thrown";
  } catch (const Error& error) {
    EXPECT_EQ(error.exit_code(), ExitCode::kLostPeer);
    EXPECT_THAT(error.what(), HasSubstr("launch: rank 1 (process "));
    EXPECT_THAT(error.what(), HasSubstr("hung: it did not end after the others had"));
  }
  // Starting takes part of it; all ranks are out.
  EXPECT_LT(Clock::now() - start, std::chrono::seconds(kTimeoutS + 5));
  std::string all;
  for (const int64_t rank : {0, 2}) {
    std::stringstream text;
    text << std::ifstream(folder / fmt::format("rank_{}.log", rank)).rdbuf();
    EXPECT_THAT(text.str(), HasSubstr(fmt::format(
                                "error: [rank {0}: dp {0} edp {0}] {1} \"test.site\" over group "
                                "world of ranks 0 1 2 failed in step 3, layer 5: ",
                                rank, kind.substr(0, kind.find('/')))));
    EXPECT_THAT(text.str(), HasSubstr(fmt::format(
                                "; rank 1 is silent: dead, hung or still computing, last heard "
                                "of outside of calls, after {} \"test.site\" over group world "
                                "of ranks 0 1 2 in step 2, layer 5 at ",
                                kind.substr(0, kind.find('/')))));
    all += text.str();
  }
  // Who gives up first hangs up on the other.
  EXPECT_THAT(all, HasSubstr("rank 1 did not take part within 5 s"));
  fs::remove_all(folder);
}

std::vector<std::string> kinds() {
  std::vector<std::string> names;
  for (const auto& [name, call] : calls()) {
    names.push_back(name);
  }
  return names;
}

INSTANTIATE_TEST_SUITE_P(EachKind, Hang, testing::ValuesIn(kinds()));

}  // namespace
}  // namespace switchyard

int main(int argc, char** argv) {
  if (argc == 4 && std::string(argv[1]) == "--rank") {
    return switchyard::run_rank(argv[2], std::stoll(argv[3]));
  }
  testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
