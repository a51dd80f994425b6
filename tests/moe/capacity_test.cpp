#include "moe/capacity.h"

#include <gtest/gtest.h>

#include <ATen/ATen.h>

#include "parallel/groups.h"

namespace switchyard {
namespace {

// Three experts, one per token: sequences of 4 and 3 tokens, then a token of padding.
struct CapacityCase {
  CapacityCase() {
    routing.expert_ids = at::tensor({0, 0, 1, 0, 2, 2, 2, 1}, at::kLong).view({8, 1});
    routing.weights =
        at::tensor({0.1, 0.5, 0.9, 0.3, 0.2, 0.2, 0.8, 0.7}, at::kDouble).view({8, 1});
    routing.logits = at::zeros({8, 3}, at::kDouble);
  }

  KeptCopies kept() const {
    return keep_capacity(routing, config, SequenceTable::from_lengths({4, 3}, 8), {0, 8},
                         RowRanks(*groups));
  }

  std::unique_ptr<Groups> groups = Groups::single();
  Routing routing;
  RoutingConfig config{.capacity_factor = 1};  // 2 copies of the first sequence, 1 of the second
};

at::Tensor column(const std::vector<int64_t>& ids) {
  return at::tensor(ids, at::kLong).view({-1, 1});
}

TEST(ExpertCapacity, IsTheEvenShareTimesTheFactorRoundedUp) {
  EXPECT_EQ(expert_capacity(8, 2, 4, 1.0), 4);
  EXPECT_EQ(expert_capacity(9, 2, 4, 1.0), 5);
  EXPECT_EQ(expert_capacity(8, 2, 4, 1.3), 6);
  EXPECT_EQ(expert_capacity(1, 1, 64, 0.5), 1);
  EXPECT_EQ(expert_capacity(8, 2, 4, 1000), 8);  // no expert can get more
}

TEST(KeepCapacity, KeepsTheLargestWeightsOfEachSequence) {
  const CapacityCase c;
  const KeptCopies kept = c.kept();
  EXPECT_TRUE(at::equal(kept.expert_ids, column({-1, 0, 1, 0, -1, -1, 2, -1})));
  EXPECT_EQ(kept.num_dropped, 3);  // padding is neither kept nor dropped
  EXPECT_TRUE(kept.padding_rows.empty());
}

TEST(KeepCapacity, KeepsTheFirstOfEachSequence) {
  CapacityCase c;
  c.config.capacity_drop = CapacityDrop::kPosition;
  EXPECT_TRUE(at::equal(c.kept().expert_ids, column({0, 0, 1, -1, 2, -1, -1, -1})));
}

TEST(KeepCapacity, GivesEqualWeightsToTheFirstToken) {
  CapacityCase c;
  c.routing.weights.fill_(0.5);
  EXPECT_TRUE(at::equal(c.kept().expert_ids, column({0, 0, 1, -1, 2, -1, -1, -1})));
}

TEST(KeepCapacity, FillsEveryExpertUpToItsCapacity) {
  CapacityCase c;
  c.config.capacity_padding = true;
  // Capacities 2 and 1: expert 0 has 2 + 0 copies, expert 1 has 1 + 0, expert 2 has 0 + 1.
  EXPECT_EQ(c.kept().padding_rows, (std::vector<int64_t>{1, 2, 2}));
}

TEST(KeepCapacity, DropsNothingWhenThereIsRoom) {
  CapacityCase c;
  c.config.capacity_factor = 3;
  const KeptCopies kept = c.kept();
  EXPECT_EQ(kept.num_dropped, 0);
  EXPECT_TRUE(at::equal(kept.expert_ids.narrow(0, 0, 7), c.routing.expert_ids.narrow(0, 0, 7)));
}

}  // namespace
}  // namespace switchyard
