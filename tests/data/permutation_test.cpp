#include "data/permutation.h"

#include <cmath>
#include <map>
#include <set>
#include <unordered_set>
#include <vector>

#include <gtest/gtest.h>

namespace switchyard {
namespace {

// How often each value occurs: all ones for a permutation.
std::vector<int> occurrences(const Permutation& permutation) {
  std::vector<int> counts(static_cast<size_t>(permutation.size()));
  for (int64_t i = 0; i < permutation.size(); ++i) {
    ++counts.at(static_cast<size_t>(permutation.at(i)));
  }
  return counts;
}

TEST(Permutation, TakesEveryValueOnceForEverySizeUpTo2000) {
  for (int64_t size = 1; size <= 2000; ++size) {
    const Permutation permutation(size, static_cast<uint64_t>(size), "test");
    ASSERT_EQ(occurrences(permutation), std::vector<int>(static_cast<size_t>(size), 1)) << size;
  }
}

TEST(Permutation, TakesEveryValueOnceAroundLargePowersOfTwo) {
  for (const int64_t size : {(1 << 17) - 1, 1 << 17, (1 << 17) + 1, 1'000'003}) {
    const Permutation permutation(size, 5, "test");
    ASSERT_EQ(occurrences(permutation), std::vector<int>(static_cast<size_t>(size), 1)) << size;
  }
}

TEST(Permutation, StaysInRangeWithoutRepeatsWhereItCannotBeListed) {
  for (const int64_t size : {int64_t{1} << 33, int64_t{3'000'000'000'001}, int64_t{1} << 62}) {
    const Permutation permutation(size, 5, "test");
    std::unordered_set<int64_t> seen;
    for (int64_t i = 0; i < 20'000; ++i) {
      for (const int64_t index : {i, size - 1 - i}) {
        const int64_t value = permutation.at(index);
        ASSERT_GE(value, 0);
        ASSERT_LT(value, size);
        seen.insert(value);
      }
    }
    EXPECT_EQ(seen.size(), 40'000U);
  }
}

// All orders of four samples occur about equally often over seeds: chi-square with 23 degrees of
// freedom is below 49.7 in all but one of a thousand draws.
TEST(Permutation, ReachesAllOrdersOfFourEvenly) {
  std::map<std::vector<int64_t>, int> orders;
  const int draws = 24'000;
  for (uint64_t seed = 0; seed < draws; ++seed) {
    const Permutation permutation(4, seed, "test");
    ++orders[{permutation.at(0), permutation.at(1), permutation.at(2), permutation.at(3)}];
  }
  ASSERT_EQ(orders.size(), 24U);
  double chi_square = 0;
  for (const auto& [order, count] : orders) {
    chi_square += (count - 1000.0) * (count - 1000.0) / 1000.0;
  }
  EXPECT_LT(chi_square, 49.7);
}

// Each of ten samples comes first about equally often (9 degrees of freedom, one in a thousand).
TEST(Permutation, StartsWithEverySampleEquallyOften) {
  for (const int64_t size : {3, 5, 10, 17}) {
    std::vector<double> first(static_cast<size_t>(size));
    for (uint64_t seed = 0; seed < 10'000; ++seed) {
      ++first[static_cast<size_t>(Permutation(size, seed, "test").at(0))];
    }
    const double expected = 10'000.0 / static_cast<double>(size);
    double chi_square = 0;
    for (const double count : first) {
      chi_square += (count - expected) * (count - expected) / expected;
    }
    EXPECT_LT(chi_square, static_cast<double>(size) + 25) << size;
  }
}

// A permutation drawn at random has one fixed point and one neighbour kept beside its predecessor
// on average, whatever its size.
TEST(Permutation, KeepsNoMoreOrderThanChance) {
  double fixed = 0;
  double neighbours = 0;
  const int draws = 200;
  for (uint64_t seed = 0; seed < draws; ++seed) {
    const Permutation permutation(1000, seed, "test");
    for (int64_t i = 0; i < 1000; ++i) {
      fixed += permutation.at(i) == i ? 1 : 0;
      neighbours += i > 0 && permutation.at(i) == permutation.at(i - 1) + 1 ? 1 : 0;
    }
  }
  // Five standard errors of a mean of Poisson counts.
  EXPECT_NEAR(fixed / draws, 1, 5 / std::sqrt(draws));
  EXPECT_NEAR(neighbours / draws, 1, 5 / std::sqrt(draws));
}

TEST(Permutation, DependsOnSeedAndName) {
  std::set<std::vector<int64_t>> orders;
  for (const char* name : {"epoch 0", "epoch 1"}) {
    for (const uint64_t seed : {0, 1}) {
      const Permutation permutation(100, seed, name);
      std::vector<int64_t> order;
      for (int64_t i = 0; i < 100; ++i) {
        order.push_back(permutation.at(i));
      }
      orders.insert(order);
    }
  }
  EXPECT_EQ(orders.size(), 4U);
}

// Runs resume on the order of the data: it must never change.
TEST(Permutation, KeepsItsOrder) {
  const Permutation permutation(10, 1234, "data.order");
  std::vector<int64_t> order;
  for (int64_t i = 0; i < 10; ++i) {
    order.push_back(permutation.at(i));
  }
  EXPECT_EQ(order, (std::vector<int64_t>{5, 0, 3, 7, 1, 2, 9, 4, 6, 8}));
}

}  // namespace
}  // namespace switchyard
