#include "ops/top_k.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include <gtest/gtest.h>

#include <ATen/ATen.h>

#include "ops/op_checks.h"

namespace switchyard {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInfinity = std::numeric_limits<double>::infinity();

at::Tensor ids(const std::vector<int64_t>& values) {
  return at::tensor(values, at::kLong).unsqueeze(0);
}
at::Tensor scores_of(const std::vector<double>& values) {
  return at::tensor(values, at::kDouble).unsqueeze(0);
}

// A stable sort of all experts, NaN below everything.
std::vector<int64_t> sorted_ids(const double* scores, int64_t num_experts) {
  std::vector<int64_t> order(static_cast<size_t>(num_experts));
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [scores](int64_t left, int64_t right) {
    if (std::isnan(scores[left]) || std::isnan(scores[right])) {
      return !std::isnan(scores[left]) && std::isnan(scores[right]);
    }
    return scores[left] > scores[right];
  });
  return order;
}

TEST(TopKIds, OrdersByScoreDownwards) {
  EXPECT_TRUE(at::equal(top_k_ids(scores_of({0.1, 0.5, -3, 0.4}), 3), ids({1, 3, 0})));
}

TEST(TopKIds, GivesTiesToTheLowestId) {
  EXPECT_TRUE(at::equal(top_k_ids(scores_of({1, 2, 2, 1, 2, 0}), 4), ids({1, 2, 4, 0})));
  EXPECT_TRUE(at::equal(top_k_ids(at::zeros({1, 64}), 3), ids({0, 1, 2})));
  EXPECT_TRUE(at::equal(top_k_ids(scores_of({-0.0, 0.0}), 2), ids({0, 1})));
}

TEST(TopKIds, PutsNanLastAndStillGivesDistinctIds) {
  EXPECT_TRUE(at::equal(top_k_ids(scores_of({kNan, -kInfinity, 1, kNan}), 4), ids({2, 1, 0, 3})));
  EXPECT_TRUE(at::equal(top_k_ids(scores_of({kNan, kNan, kNan}), 2), ids({0, 1})));
}

TEST(TopKIds, EqualsAStableSortForAllTypes) {
  at::manual_seed(1);
  for (const auto type : {at::kDouble, at::kFloat, at::kBFloat16}) {
    // One decimal: many ties.
    at::Tensor scores = at::randn({200, 17}, at::kDouble).mul(10).round().div(10).to(type);
    scores.masked_fill_(at::rand({200, 17}).lt(0.1), kNan);
    const at::Tensor as_double = scores.to(at::kDouble);
    for (const int64_t k : {1, 4, 17}) {
      const at::Tensor actual = top_k_ids(scores, k);
      for (int64_t token = 0; token < 200; ++token) {
        const auto order = sorted_ids(as_double.const_data_ptr<double>() + token * 17, 17);
        for (int64_t slot = 0; slot < k; ++slot) {
          ASSERT_EQ(actual[token][slot].item<int64_t>(), order[static_cast<size_t>(slot)])
              << "token " << token << " slot " << slot << " k " << k;
        }
      }
    }
  }
}

TEST(TopKIds, AcceptsNoTokensAndStridedScores) {
  EXPECT_EQ(top_k_ids(at::zeros({0, 4}), 2).sizes(), (std::vector<int64_t>{0, 2}));
  const at::Tensor scores = at::randn({5, 9});
  EXPECT_TRUE(at::equal(top_k_ids(scores.t(), 2), top_k_ids(scores.t().contiguous(), 2)));
}

TEST(TopKIds, DoesNotDependOnThreads) {
  const at::Tensor scores = at::randn({5000, 32});
  expect_same_bytes_for_all_thread_counts([&] { return Tensors{top_k_ids(scores, 4)}; });
}

TEST(TopKIds, NamesWhatIsWrong) {
  EXPECT_EQ(message_of([] {
              top_k_ids(at::zeros({2, 4}), 5);
            }),
            "top_k_ids: k (5) must be 1 to num_experts (4)");
  EXPECT_EQ(message_of([] {
              top_k_ids(at::zeros({2, 4}), 0);
            }),
            "top_k_ids: k (0) must be 1 to num_experts (4)");
  EXPECT_EQ(message_of([] { top_k_ids(at::zeros({4}), 1); }),
            "top_k_ids: scores must have shape [*, *], got [4]");
  EXPECT_EQ(message_of([] {
              top_k_ids(at::zeros({2, 4}, at::kLong), 1);
            }),
            "top_k_ids: scores must be fp64, fp32 or bf16, got Long");
}

}  // namespace
}  // namespace switchyard
