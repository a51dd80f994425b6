#include "parallel/ledger.h"

#include <gtest/gtest.h>

namespace switchyard {
namespace {

constexpr Site kDispatch{"moe.dispatch", Purpose::kDispatch};
constexpr Site kDispatchBackward{"moe.dispatch", Purpose::kDispatch, true};
constexpr Site kNorm{"optimizer.norm", Purpose::kStatistics};

TEST(Ledger, AddsUpCallsBytesAndTimeBySiteCollectiveAndGroup) {
  Ledger ledger;
  ledger.record(kDispatch, "all_to_all", "ep", 100, 0.5);
  ledger.record(kDispatch, "all_to_all", "ep", 20, 0.25, 4);
  ledger.record(kDispatch, "all_to_all", "ep-etp", 3, 0);
  ledger.record(kDispatchBackward, "all_to_all", "ep", 7, 1);
  ledger.record(kNorm, "all_reduce", "world", 8, 2);

  const auto entries = ledger.entries();
  ASSERT_EQ(entries.size(), 4u);
  EXPECT_EQ(entries[0].site, "moe.dispatch");
  EXPECT_EQ(entries[0].collective, "all_to_all");
  EXPECT_EQ(entries[0].group, "ep");
  EXPECT_EQ(entries[0].calls, 2);
  EXPECT_EQ(entries[0].bytes, 120);
  EXPECT_EQ(entries[0].seconds, 0.75);
  EXPECT_EQ(entries[0].hidden_seconds, 4);
  EXPECT_EQ(entries[1].group, "ep-etp");
  EXPECT_EQ(entries[2].site, "moe.dispatch/backward");
  EXPECT_EQ(entries[3].site, "optimizer.norm");

  EXPECT_EQ(ledger.bytes(Purpose::kDispatch), 130);
  EXPECT_EQ(ledger.seconds(Purpose::kDispatch), 1.75);
  EXPECT_EQ(ledger.hidden_seconds(Purpose::kDispatch), 4);
  EXPECT_EQ(ledger.seconds(), 3.75);
  EXPECT_EQ(ledger.bytes(Purpose::kStatistics), 8);
  EXPECT_EQ(ledger.bytes(Purpose::kCombine), 0);

  ledger.clear();
  EXPECT_TRUE(ledger.entries().empty());
  EXPECT_EQ(ledger.seconds(), 0);
}

TEST(Ledger, RemovesOneDirectionOfASiteForATest) {
  Ledger ledger;
  EXPECT_FALSE(ledger.is_removed(kDispatch));
  ledger.remove_site_for_test("moe.dispatch/backward");
  EXPECT_FALSE(ledger.is_removed(kDispatch));
  EXPECT_TRUE(ledger.is_removed(kDispatchBackward));
  ledger.remove_site_for_test("moe.dispatch");
  EXPECT_TRUE(ledger.is_removed(kDispatch));
  EXPECT_FALSE(ledger.is_removed(kDispatchBackward));
}

TEST(Ledger, ScalesExceptWhereTheSiteIsRemoved) {
  Ledger ledger;
  EXPECT_EQ(ledger.scale(kNorm, 0.125), 0.125);
  ledger.remove_site_for_test("optimizer.norm");
  EXPECT_EQ(ledger.scale(kNorm, 0.125), 1);
  EXPECT_EQ(ledger.scale(kDispatch, 0.5), 0.5);
  EXPECT_EQ(ledger.scale_sites().at("optimizer.norm"), 2);
  EXPECT_EQ(ledger.scale_sites().at("moe.dispatch"), 1);
}

TEST(Purpose, HasADistinctName) {
  EXPECT_EQ(to_string(Purpose::kTensorParallel), "tensor parallel");
  EXPECT_EQ(to_string(Purpose::kContextParallel), "context parallel");
  EXPECT_EQ(to_string(Purpose::kDispatch), "dispatch");
  EXPECT_EQ(to_string(Purpose::kCombine), "combine");
  EXPECT_EQ(to_string(Purpose::kGradient), "gradient");
  EXPECT_EQ(to_string(Purpose::kStatistics), "statistics");
  EXPECT_EQ(to_string(Purpose::kCheckpoint), "checkpoint");
  EXPECT_EQ(to_string(Purpose::kControl), "control");
}

}  // namespace
}  // namespace switchyard
