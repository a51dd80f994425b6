#include "parallel/slow_link.h"

#include <chrono>

#include <gtest/gtest.h>

#include <ATen/ATen.h>

#include "base/error.h"
#include "config/config.h"
#include "config/rules.h"
#include "parallel/launch.h"

namespace switchyard {
namespace {

using Clock = std::chrono::steady_clock;

constexpr Site kSite{"test.site", Purpose::kDispatch};
const SlowGroups kSlowExperts{.names = {GroupName::kExpert},
                              .speed = {.latency_s = 0.02, .bytes_per_s = 1e6}};

void run_two_ranks(const SlowGroups& slow, const std::function<void(Groups&)>& body) {
  run_ranks({.world_size = 2, .expert = 2}, body, std::chrono::seconds(60),
            /*verify_calls=*/false, slow);
}

double seconds_of(const std::function<void()>& work) {
  const auto start = Clock::now();
  work();
  return std::chrono::duration<double>(Clock::now() - start).count();
}

TEST(SlowLink, TakesItsLatencyAndItsBytesTime) {
  run_two_ranks(kSlowExperts, [](Groups& groups) {
    at::Tensor values = at::full({10000}, 1.0 + static_cast<double>(groups.rank()), at::kFloat);
    EXPECT_GE(seconds_of([&] { groups[GroupName::kExpert].all_reduce(values, kSite); }), 0.06);
    EXPECT_TRUE(values.equal(at::full({10000}, 3.0, at::kFloat)));
    const at::Tensor rows = at::arange(6, at::kFloat) + 10 * static_cast<double>(groups.rank());
    at::Tensor received;
    EXPECT_GE(seconds_of([&] {
                received = groups[GroupName::kExpert].all_to_all(rows, {3, 3}, {3, 3}, kSite);
              }),
              0.02);
    const double own = 3 * static_cast<double>(groups.rank());
    EXPECT_TRUE(received.equal(
        at::cat({at::arange(3, at::kFloat) + own, at::arange(3, at::kFloat) + own + 10})));
  });
}

TEST(SlowLink, SendsOneThingAfterTheOther) {
  run_two_ranks(kSlowExperts, [](Groups& groups) {
    const Group& group = groups[GroupName::kExpert];
    const at::Tensor rows = at::zeros({2, 5000}, at::kFloat);  // 20 ms for one of them
    EXPECT_GE(seconds_of([&] {
                PendingRows first = group.start_all_to_all(rows, {1, 1}, {1, 1}, kSite);
                PendingRows second = group.start_all_to_all(rows, {1, 1}, {1, 1}, kSite);
                first.wait();
                second.wait();
              }),
              0.06);
  });
}

// What went on in the background while the rank did something else is hidden time.
TEST(SlowLink, LeavesTheRankFree) {
  run_two_ranks(kSlowExperts, [](Groups& groups) {
    const at::Tensor rows = at::zeros({2, 5000}, at::kFloat);
    PendingRows pending = groups[GroupName::kExpert].start_all_to_all(rows, {1, 1}, {1, 1}, kSite);
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    pending.wait();
    const LedgerEntry entry = groups.ledger().entries().at(0);
    EXPECT_GE(entry.hidden_seconds, 0.02);
    EXPECT_GE(entry.hidden_seconds + entry.seconds, 0.04);
  });
}

// Waiting for one call is not computing beside another.
TEST(SlowLink, CountsAsHiddenOnlyWhileTheRankWaitsForNothing) {
  run_two_ranks(kSlowExperts, [](Groups& groups) {
    const Group& group = groups[GroupName::kExpert];
    const at::Tensor rows = at::zeros({2, 50000}, at::kFloat);
    PendingRows first = group.start_all_to_all(rows, {1, 1}, {1, 1}, {"first"});
    PendingRows second = group.start_all_to_all(rows, {1, 1}, {1, 1}, {"second"});
    first.wait();
    second.wait();
    double hidden = 0;
    double waited = 0;
    for (const LedgerEntry& entry : groups.ledger().entries()) {
      hidden += entry.hidden_seconds;
      waited += entry.seconds;
    }
    EXPECT_LT(hidden, 0.5 * waited);
  });
}

TEST(SlowLink, LeavesOtherGroupsAlone) {
  SlowGroups slow = kSlowExperts;
  slow.speed.latency_s = 600;
  run_two_ranks(slow, [](Groups& groups) {
    at::Tensor values = at::ones({4}, at::kFloat);
    groups[GroupName::kWorld].all_reduce(values, kSite);
    EXPECT_TRUE(values.equal(at::full({4}, 2.0, at::kFloat)));
  });
}

TEST(SlowGroups, ComeFromTheSettings) {
  ParallelConfig parallel;
  parallel.slow_link = {"ep", "dp-cp"};
  parallel.link_latency_us = 250;
  parallel.link_gb_per_s = 12.5;
  const SlowGroups slow = slow_groups(parallel);
  EXPECT_EQ(slow.names, (std::vector{GroupName::kExpert, GroupName::kDataContext}));
  EXPECT_DOUBLE_EQ(slow.speed.latency_s, 250e-6);
  EXPECT_DOUBLE_EQ(slow.speed.bytes_per_s, 12.5e9);
  parallel.slow_link = {"nodes"};
  EXPECT_THROW((void)slow_groups(parallel), ConfigError);
}

TEST(SlowGroups, AreTheOnesThatTheRulesKnow) {
  Config config;
  config.parallel.link_latency_us = 1;
  for (int i = 0; i < kNumGroupNames; ++i) {
    config.parallel.slow_link.emplace_back(to_string(static_cast<GroupName>(i)));
  }
  for (const std::string& line : broken_rules(config, ConfigUse::kDescribe)) {
    EXPECT_EQ(line.find("parallel.slow_link"), std::string::npos) << line;
  }
}

}  // namespace
}  // namespace switchyard
