#include "base/random.h"

#include <cmath>
#include <set>

#include <gtest/gtest.h>

namespace switchyard {
namespace {

using Words = std::array<uint32_t, 4>;

// Known answers published with Random123 (kat_vectors, philox4x32 10 rounds).
TEST(Philox, GivesThePublishedKnownAnswers) {
  EXPECT_EQ(philox4x32({0, 0, 0, 0}, {0, 0}),
            (Words{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(philox4x32({0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff}, {0xffffffff, 0xffffffff}),
            (Words{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(philox4x32({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}),
            (Words{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(NormalQuantile, InvertsTheNormalDistributionFunction) {
  for (const double p : {1e-300, 1e-20, 1e-9, 0.001, 0.07, 0.3, 0.5, 0.7, 0.93, 0.999}) {
    const double x = normal_quantile(p);
    EXPECT_NEAR(0.5 * std::erfc(-x / std::sqrt(2.0)) / p, 1, 1e-12) << p;
  }
}

TEST(RandomStream, HasTheMomentsOfItsDistributions) {
  const RandomStream stream(7, "moments");
  const uint64_t count = 200000;
  double mean = 0;
  double square = 0;
  double fourth = 0;
  double uniform = 0;
  for (uint64_t i = 0; i < count; ++i) {
    const double x = stream.normal(i);
    mean += x / count;
    square += x * x / count;
    fourth += x * x * x * x / count;
    uniform += stream.uniform(i) / count;
  }
  // Five standard errors of each estimate.
  EXPECT_NEAR(mean, 0, 5 / std::sqrt(count));
  EXPECT_NEAR(square, 1, 5 * std::sqrt(2.0 / count));
  EXPECT_NEAR(fourth, 3, 5 * std::sqrt(96.0 / count));
  EXPECT_NEAR(uniform, 0.5, 5 * std::sqrt(1.0 / 12 / count));
}

TEST(RandomStream, DiffersBetweenNamesSeedsAndIndices) {
  std::set<uint64_t> seen;
  for (const char* name : {"a", "b", "layers.0.router.weight"}) {
    for (const uint64_t seed : {0, 1, 2}) {
      for (uint64_t i = 0; i < 1000; ++i) {
        seen.insert(RandomStream(seed, name).bits(i));
      }
    }
  }
  EXPECT_EQ(seen.size(), 9000U);
}

TEST(RandomStream, BelowReachesEveryValueEvenly) {
  const RandomStream stream(1, "below");
  std::array<int, 7> counts{};
  for (uint64_t i = 0; i < 70000; ++i) {
    ++counts.at(stream.below(i, 7));
  }
  for (const int count : counts) {
    EXPECT_NEAR(count, 10000, 500);
  }
}

}  // namespace
}  // namespace switchyard
