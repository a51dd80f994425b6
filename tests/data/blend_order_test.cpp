#include "data/blend_order.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <numeric>

#include <gtest/gtest.h>

#include "base/error.h"
#include "base/random.h"

namespace switchyard {
namespace {

using Weights = std::vector<double>;

double sum_of(const Weights& weights) {
  return std::accumulate(weights.begin(), weights.end(), 0.0);
}

// Walks the first `positions` and checks, in every prefix, that each count is within one of its
// share and that the draws of a set are numbered without gaps.
void expect_fair(const Weights& weights, int64_t positions) {
  BlendOrder order(shares_of_weights(weights));
  const double sum = sum_of(weights);
  std::vector<int64_t> counts(weights.size());
  for (int64_t n = 0; n < positions; ++n) {
    const BlendDraw draw = order.at(n);
    ASSERT_EQ(draw.count, counts.at(static_cast<size_t>(draw.set))++) << n;
    for (size_t set = 0; set < weights.size(); ++set) {
      const double share = static_cast<double>(n + 1) * weights[set] / sum;
      ASSERT_LT(std::abs(static_cast<double>(counts[set]) - share), 1 + 1e-9)
          << "set " << set << " of weight " << weights[set] << " after " << n + 1 << " draws";
    }
  }
}

Weights random_weights(size_t count, uint64_t seed, double decades) {
  const RandomStream stream(seed, "weights");
  Weights weights;
  for (size_t i = 0; i < count; ++i) {
    weights.push_back(std::pow(10, -decades * stream.uniform(i)));
  }
  return weights;
}

TEST(BlendOrder, DrawsAloneFromASingleSet) {
  BlendOrder order({7});
  for (const int64_t position : {int64_t{0}, int64_t{1}, int64_t{1000}, int64_t{1} << 60}) {
    EXPECT_EQ(order.at(position).set, 0);
    EXPECT_EQ(order.at(position).count, position);
  }
}

TEST(BlendOrder, TakesTurnsBetweenEqualSets) {
  BlendOrder order({1, 1});
  for (int64_t position = 0; position < 10; ++position) {
    EXPECT_EQ(order.at(position).set, position % 2);
    EXPECT_EQ(order.at(position).count, position / 2);
  }
}

// By hand, shares .5, .3, .1, .1. The small two own positions 4 and 9, where floor(n x .2) rises.
// Elsewhere sets 0 and 1 come by deadline: 2, 4, 6, 8, 10 and 4, 7, 10, not before 0, 2, 4, 6, 8
// and 0, 3, 6. Runs resume on this order: it must never change.
TEST(BlendOrder, IsTheOrderCalculatedByHand) {
  BlendOrder order({5, 3, 1, 1});
  std::vector<int64_t> sets;
  for (int64_t position = 0; position < 10; ++position) {
    sets.push_back(order.at(position).set);
  }
  EXPECT_EQ(sets, (std::vector<int64_t>{0, 1, 0, 1, 2, 0, 0, 1, 0, 3}));
}

TEST(BlendOrder, GivesEachSetItsShareInEveryPrefix) {
  expect_fair({.001, .999}, 30'000);
  expect_fair({.7, .2, .1}, 3'000);
  expect_fair({1.0 / 3, 1.0 / 3, 1.0 / 3}, 3'000);
  expect_fair({.5, .499, .001}, 30'000);
  expect_fair({.25, .25, .25, .24, .0099, .0001}, 100'000);
  expect_fair({std::sqrt(2), std::sqrt(3), std::sqrt(5)}, 30'000);
  expect_fair(Weights(50, 1), 5'000);
  for (uint64_t seed = 0; seed < 40; ++seed) {
    const size_t sets = 2 + seed * 5 % 49;
    expect_fair(random_weights(sets, seed, 0.3), 3'000);
    expect_fair(random_weights(sets, seed, 2), 3'000);
    expect_fair(random_weights(sets, seed, 5), 10'000);
  }
}

// Small shares of whole numbers: all positions of one period, with every set exactly used up.
TEST(BlendOrder, UsesUpWholeNumbersInOnePeriod) {
  for (const std::vector<int64_t>& shares :
       {std::vector<int64_t>{3, 3000}, {1, 2, 3, 4}, {100, 1, 1, 1, 1}, {977, 13, 5, 5}}) {
    BlendOrder order(shares);
    const int64_t period = std::accumulate(shares.begin(), shares.end(), int64_t{0});
    std::vector<int64_t> counts(shares.size());
    for (int64_t n = 0; n < 3 * period; ++n) {
      ++counts[static_cast<size_t>(order.at(n).set)];
      if ((n + 1) % period == 0) {
        for (size_t set = 0; set < shares.size(); ++set) {
          ASSERT_EQ(counts[set], shares[set] * ((n + 1) / period));
        }
      }
    }
  }
}

// Reached from anywhere, a position draws what walking there from the start draws.
TEST(BlendOrder, ReachesAPositionAsWalkingThereDoes) {
  for (uint64_t seed = 0; seed < 30; ++seed) {
    const auto shares = shares_of_weights(random_weights(2 + seed * 7 % 30, seed, 4));
    const int64_t positions = 40'000;
    std::vector<BlendDraw> walked;
    BlendOrder walking(shares);
    for (int64_t n = 0; n < positions; ++n) {
      walked.push_back(walking.at(n));
    }
    const RandomStream jumps(seed, "jumps");
    BlendOrder jumping(shares);
    for (uint64_t i = 0; i < 60; ++i) {
      // Fresh, so that the position is reached by starting anew; and from where the last jump led.
      const auto n = static_cast<int64_t>(jumps.below(i, positions));
      const BlendDraw expected = walked[static_cast<size_t>(n)];
      for (const BlendDraw& draw : {BlendOrder(shares).at(n), jumping.at(n), jumping.at(n)}) {
        ASSERT_EQ(draw.set, expected.set) << "seed " << seed << " position " << n;
        ASSERT_EQ(draw.count, expected.count) << "seed " << seed << " position " << n;
      }
    }
  }
}

double seconds_to_reach(const std::vector<int64_t>& shares, int64_t position) {
  BlendOrder order(shares);
  const auto start = std::chrono::steady_clock::now();
  order.at(position);
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

TEST(BlendOrder, StaysFairFarOut) {
  const int64_t far = 1'000'000'000;
  for (const Weights& weights :
       {Weights{.001, .999}, random_weights(50, 1, 0.3), random_weights(50, 2, 4)}) {
    BlendOrder order(shares_of_weights(weights));
    const double sum = sum_of(weights);
    for (int64_t n = far; n < far + 2'000; ++n) {
      const BlendDraw draw = order.at(n);
      const double share = weights[static_cast<size_t>(draw.set)] / sum;
      ASSERT_LT(std::abs(static_cast<double>(draw.count) - static_cast<double>(n) * share),
                1 + 1e-6);
    }
  }
}

// Bounds ten times what was measured, so that a busy machine passes and a walk from zero (a
// minute) does not.
TEST(BlendOrder, ReachesABillionInAboutAMillisecond) {
  const int64_t far = 1'000'000'000;
  EXPECT_LT(seconds_to_reach(shares_of_weights({.001, .999}), far), 0.01);
  EXPECT_LT(seconds_to_reach(shares_of_weights(random_weights(50, 1, 0.3)), far), 0.01);
  EXPECT_LT(seconds_to_reach(shares_of_weights(random_weights(50, 2, 4)), far), 0.02);
  EXPECT_LT(seconds_to_reach(shares_of_weights({1e-12, 1e-6, 1}), far), 0.5);
}

TEST(BlendOrder, RefusesAVanishingWeight) {
  try {
    shares_of_weights({1, 1e-19});
    FAIL();
  } catch (const ConfigError& error) {
    EXPECT_STREQ(error.what(), "a weight of 1e-19 beside others of 1 in all is too small");
  }
}

}  // namespace
}  // namespace switchyard
