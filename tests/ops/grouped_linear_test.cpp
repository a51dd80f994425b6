#include "ops/grouped_linear.h"

#include <numeric>

#include <gtest/gtest.h>

#include <ATen/ATen.h>

#include "ops/op_checks.h"

namespace switchyard {
namespace {

// Counts with experts that have no rows, one row, and most of the rows.
const std::vector<int64_t> kSkewed = {0, 1, 130, 0, 0, 7, 9, 0};
constexpr int64_t kRows = 147;

Tensors linear(const Tensors& inputs, const std::vector<int64_t>& rows_per_expert) {
  return {grouped_linear(inputs[0], inputs[1], rows_per_expert)};
}

// Sums one product at a time, in fp64.
at::Tensor naive_linear(const at::Tensor& rows, const at::Tensor& weight,
                        const std::vector<int64_t>& rows_per_expert) {
  const at::Tensor x = rows.to(at::kDouble);
  const at::Tensor w = weight.to(at::kDouble);
  at::Tensor out = at::zeros({rows.size(0), weight.size(1)}, at::kDouble);
  const auto row = x.accessor<double, 2>();
  const auto weights = w.accessor<double, 3>();
  auto result = out.accessor<double, 2>();
  int64_t i = 0;
  for (size_t expert = 0; expert < rows_per_expert.size(); ++expert) {
    for (const int64_t end = i + rows_per_expert[expert]; i < end; ++i) {
      for (int64_t j = 0; j < weight.size(1); ++j) {
        for (int64_t k = 0; k < weight.size(2); ++k) {
          result[i][j] += row[i][k] * weights[static_cast<int64_t>(expert)][j][k];
        }
      }
    }
  }
  return out;
}

// The rounding of sums of up to a few hundred products, over the largest sum.
double tolerance(at::ScalarType type) {
  return type == at::kDouble ? 1e-14 : type == at::kFloat ? 2e-6 : 4e-3;
}

TEST(GroupedLinear, EqualsANaiveLoop) {
  at::manual_seed(5);
  const PoisonNewTensors poison;
  for (const auto type : {at::kDouble, at::kFloat, at::kBFloat16}) {
    for (const auto& [in, out] :
         std::vector<std::pair<int64_t, int64_t>>{{1, 1}, {3, 5}, {32, 48}, {70, 131}, {129, 64}}) {
      const at::Tensor rows = at::randn({kRows, in}).to(type);
      const at::Tensor weight = at::randn({8, out, in}).to(type);
      const at::Tensor actual = grouped_linear(rows, weight, kSkewed);
      EXPECT_EQ(actual.scalar_type(), type);
      EXPECT_LE(relative_error(actual, naive_linear(rows, weight, kSkewed)), tolerance(type))
          << type << " in " << in << " out " << out;
    }
  }
}

TEST(GroupedLinear, HasTheGradientsOfDifferences) {
  at::manual_seed(6);
  const std::vector<int64_t> counts = {2, 0, 5, 1};
  expect_gradients_match_differences(
      [&](const Tensors& x) { return linear(x, counts); },
      {at::randn({8, 5}, at::kDouble), at::randn({4, 6, 5}, at::kDouble)});
}

TEST(GroupedLinear, RoundsGradientsOnceInBf16) {
  const PoisonNewTensors poison;
  // More rows than are summed at once, so that partial sums have to stay in fp32.
  const std::vector<int64_t> counts = {1300, 0, 301};
  const at::Tensor rows = at::randn({1601, 37}).to(at::kBFloat16);
  const at::Tensor weight = at::randn({3, 45, 37}).to(at::kBFloat16);
  const at::Tensor probe = at::randn({1601, 45}).to(at::kBFloat16);
  const auto op = [&](const Tensors& x) { return linear(x, counts); };
  const Tensors actual = gradients(op, {rows, weight}, {probe});
  const Tensors expected =
      gradients(op, {rows.to(at::kDouble), weight.to(at::kDouble)}, {probe.to(at::kDouble)});
  EXPECT_LE(relative_error(actual[0], expected[0]), tolerance(at::kBFloat16));
  EXPECT_LE(relative_error(actual[1], expected[1]), tolerance(at::kBFloat16));
}

TEST(GroupedLinear, GivesExpertsWithoutRowsAZeroGradient) {
  const PoisonNewTensors poison;
  for (const auto type : {at::kDouble, at::kFloat, at::kBFloat16}) {
    const Tensors grads =
        gradients([&](const Tensors& x) { return linear(x, kSkewed); },
                  {at::randn({kRows, 20}).to(type), at::randn({8, 30, 20}).to(type)},
                  {at::randn({kRows, 30}).to(type)});
    for (int64_t expert = 0; expert < 8; ++expert) {
      const bool has_rows = kSkewed[static_cast<size_t>(expert)] > 0;
      EXPECT_EQ(grads[1][expert].ne(0).any().item<bool>(), has_rows) << "expert " << expert;
    }
  }
}

TEST(GroupedLinear, AcceptsNoRowsAtAll) {
  const PoisonNewTensors poison;
  const std::vector<int64_t> counts = {0, 0};
  const at::Tensor rows = at::zeros({0, 4});
  const at::Tensor weight = at::randn({2, 3, 4});
  EXPECT_EQ(grouped_linear(rows, weight, counts).sizes(), (std::vector<int64_t>{0, 3}));
  const Tensors grads = gradients([&](const Tensors& x) { return linear(x, counts); },
                                  {rows, weight}, {at::zeros({0, 3})});
  EXPECT_TRUE(at::equal(grads[1], at::zeros({2, 3, 4})));
}

TEST(GroupedLinear, AcceptsStridedInputs) {
  const at::Tensor rows = at::randn({20, kRows}).t();
  const at::Tensor weight = at::randn({8, 20, 30}).transpose(1, 2);
  EXPECT_TRUE(same_bytes(grouped_linear(rows, weight, kSkewed),
                         grouped_linear(rows.contiguous(), weight.contiguous(), kSkewed)));
}

TEST(GroupedLinear, GivesARowTheSameBitsWhereverItLies) {
  for (const auto type : {at::kDouble, at::kFloat, at::kBFloat16}) {
    const at::Tensor rows = at::randn({300, 600}).to(type);
    const at::Tensor weight = at::randn({1, 70, 600}).to(type);
    const at::Tensor all = grouped_linear(rows, weight, {300});
    const at::Tensor last = grouped_linear(rows.slice(0, 251), weight, {49});
    EXPECT_TRUE(same_bytes(all.slice(0, 251), last)) << type;
  }
}

TEST(GroupedLinear, DoesNotDependOnThreads) {
  const std::vector<int64_t> counts = {3, 900, 0, 120};
  for (const auto type : {at::kFloat, at::kBFloat16}) {
    const at::Tensor rows = at::randn({1023, 70}).to(type);
    const at::Tensor weight = at::randn({4, 300, 70}).to(type);
    const at::Tensor probe = at::randn({1023, 300}).to(type);
    expect_same_bytes_for_all_thread_counts([&] {
      Tensors results =
          gradients([&](const Tensors& x) { return linear(x, counts); }, {rows, weight}, {probe});
      results.push_back(grouped_linear(rows, weight, counts));
      return results;
    });
  }
}

TEST(GroupedLinear, NamesWhatIsWrong) {
  const at::Tensor rows = at::zeros({5, 4});
  const at::Tensor weight = at::zeros({2, 3, 4});
  EXPECT_EQ(message_of([&] {
              grouped_linear(rows, weight, {2, 2});
            }),
            "grouped_linear: rows_per_expert adds up to 4, but there are 5 rows");
  EXPECT_EQ(message_of([&] {
              grouped_linear(rows, weight, {6, -1});
            }),
            "grouped_linear: rows_per_expert must not be negative, got -1");
  EXPECT_EQ(message_of([&] {
              grouped_linear(rows, weight, {2, 2, 1});
            }),
            "grouped_linear: weight must have shape [3, *, 4], got [2, 3, 4]");
  EXPECT_EQ(message_of([&] {
              grouped_linear(rows, weight.to(at::kDouble), {2, 3});
            }),
            "grouped_linear: rows (Float) and weight (Double) must have the same dtype");
}

}  // namespace
}  // namespace switchyard
