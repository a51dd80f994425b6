#include "ops/route.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include <gtest/gtest.h>

#include <ATen/ATen.h>

#include "ops/op_checks.h"

namespace switchyard {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

using Row = std::vector<double>;
using Ids = std::vector<int64_t>;

Row row_of(const at::Tensor& values) {
  const at::Tensor wide = values.to(at::kDouble).contiguous();
  const auto* data = wide.const_data_ptr<double>();
  return {data, data + wide.numel()};
}

double sum_of(const Row& row) {
  return std::accumulate(row.begin(), row.end(), 0.0);
}

Ids best_of(const Row& row, int64_t count) {
  Ids ids(row.size());
  std::iota(ids.begin(), ids.end(), 0);
  std::stable_sort(ids.begin(), ids.end(), [&](int64_t a, int64_t b) {
    return row[static_cast<size_t>(a)] > row[static_cast<size_t>(b)];
  });
  ids.resize(static_cast<size_t>(count));
  return ids;
}

Row pick(const Row& row, const Ids& ids) {
  Row picked;
  for (const int64_t id : ids) {
    picked.push_back(row[static_cast<size_t>(id)]);
  }
  return picked;
}

Row exponentials(Row row) {
  for (double& value : row) {
    value = std::exp(value);
  }
  return row;
}

Row divided(Row row, double divisor) {
  for (double& value : row) {
    value /= divisor;
  }
  return row;
}

Row scores_of(const Row& logits, ScoreFunction function) {
  if (function == ScoreFunction::kSoftmax) {
    const Row values = exponentials(logits);
    return divided(values, sum_of(values));
  }
  Row scores;
  for (const double logit : logits) {
    scores.push_back(function == ScoreFunction::kSigmoid
                         ? 1 / (1 + std::exp(-logit))
                         : std::sqrt(std::log(1 + std::exp(logit))));
  }
  return scores;
}

struct Expected {
  Ids ids;
  Row weights;
  Row probabilities;
};

// The definition in the header, for one token.
Expected expected_of(const Row& logits, const Row& bias, const RouteOptions& options) {
  const Row scores = scores_of(logits, options.score_function);
  const bool is_softmax = options.score_function == ScoreFunction::kSoftmax;
  const bool over_chosen = is_softmax && options.softmax_over_chosen;
  Row ranking = is_softmax && (over_chosen || options.num_groups == 1) ? logits : scores;
  for (size_t i = 0; i < bias.size(); ++i) {
    ranking[i] += bias[i];
  }
  const int64_t group_size = static_cast<int64_t>(logits.size()) / options.num_groups;
  Row group_scores;
  for (int64_t group = 0; group < options.num_groups; ++group) {
    const Row members(ranking.begin() + group * group_size,
                      ranking.begin() + (group + 1) * group_size);
    group_scores.push_back(sum_of(pick(members, best_of(members, options.scores_per_group))));
  }
  const Ids groups = best_of(group_scores, options.group_top_k);
  for (size_t i = 0; i < ranking.size() && options.num_groups > 1; ++i) {
    if (std::find(groups.begin(), groups.end(), static_cast<int64_t>(i) / group_size) ==
        groups.end()) {
      ranking[i] = -kInfinity;
    }
  }
  Expected expected;
  expected.ids = best_of(ranking, options.top_k);
  expected.weights = pick(over_chosen ? exponentials(logits) : scores, expected.ids);
  if (over_chosen || options.renormalize) {
    expected.weights = divided(expected.weights, sum_of(expected.weights));
  }
  expected.weights = divided(expected.weights, 1 / options.scaling_factor);
  expected.probabilities = divided(scores, sum_of(scores));
  return expected;
}

void expect_near(const at::Tensor& actual, const Row& expected, double tolerance) {
  const Row values = row_of(actual);
  ASSERT_EQ(values.size(), expected.size());
  for (size_t i = 0; i < values.size(); ++i) {
    EXPECT_NEAR(values[i], expected[i], tolerance * std::max(1.0, std::abs(expected[i])));
  }
}

// All combinations that are worth one.
std::vector<RouteOptions> all_options() {
  std::vector<RouteOptions> all;
  for (const auto function :
       {ScoreFunction::kSoftmax, ScoreFunction::kSigmoid, ScoreFunction::kSqrtSoftplus}) {
    for (const bool over_chosen : {false, true}) {
      for (const bool renormalize : {false, true}) {
        for (const auto& [groups, group_top_k, per_group] :
             std::vector<std::tuple<int64_t, int64_t, int64_t>>{
                 {1, 1, 1}, {4, 2, 1}, {4, 2, 2}, {4, 3, 3}, {2, 2, 1}}) {
          for (const int64_t top_k : {1, 3}) {
            all.push_back({.top_k = top_k,
                           .score_function = function,
                           .softmax_over_chosen = over_chosen,
                           .renormalize = renormalize,
                           .scaling_factor = 2.5,
                           .num_groups = groups,
                           .group_top_k = group_top_k,
                           .scores_per_group = per_group});
          }
        }
      }
    }
  }
  return all;
}

TEST(Route, FollowsItsDefinition) {
  at::manual_seed(21);
  const PoisonNewTensors poison;
  for (const auto type : {at::kDouble, at::kFloat}) {
    const at::Tensor logits = at::randn({40, 12}, type) * 2;
    for (const RouteOptions& options : all_options()) {
      const bool is_softmax = options.score_function == ScoreFunction::kSoftmax;
      // Negative biases, below every masked score of an old implementation that masks with 0.
      const at::Tensor bias = is_softmax ? at::Tensor() : at::randn({12}, type) - 3;
      const Routes routes = route(logits, bias, {}, options, true);
      EXPECT_EQ(routes.weights.scalar_type(), type);
      for (int64_t token = 0; token < 40; ++token) {
        const Expected expected =
            expected_of(row_of(logits[token]), bias.defined() ? row_of(bias) : Row{}, options);
        const double tolerance = type == at::kDouble ? 1e-14 : 2e-6;
        for (size_t slot = 0; slot < expected.ids.size(); ++slot) {
          EXPECT_EQ(routes.expert_ids[token][static_cast<int64_t>(slot)].item<int64_t>(),
                    expected.ids[slot]);
        }
        expect_near(routes.weights[token], expected.weights, tolerance);
        expect_near(routes.probabilities[token], expected.probabilities, tolerance);
      }
    }
  }
}

TEST(Route, HasTheGradientsOfDifferences) {
  at::manual_seed(22);
  const at::Tensor logits = at::randn({4, 12}, at::kDouble);
  for (const RouteOptions& options : all_options()) {
    const at::Tensor ids = route(logits, {}, {}, options, false).expert_ids;
    expect_gradients_match_differences(
        [&](const Tensors& x) {
          const Routes routes = route(x[0], {}, ids, options, true);
          return Tensors{routes.weights, routes.probabilities};
        },
        {logits});
  }
}

TEST(Route, HasTheGradientOfEachResultAlone) {
  at::manual_seed(23);
  const at::Tensor logits = at::randn({4, 12}, at::kDouble);
  for (const auto function :
       {ScoreFunction::kSoftmax, ScoreFunction::kSigmoid, ScoreFunction::kSqrtSoftplus}) {
    const RouteOptions options{.top_k = 2, .score_function = function};
    expect_gradients_match_differences(
        [&](const Tensors& x) { return Tensors{route(x[0], {}, {}, options, true).weights}; },
        {logits});
    expect_gradients_match_differences(
        [&](const Tensors& x) { return Tensors{route(x[0], {}, {}, options, true).probabilities}; },
        {logits});
    expect_gradients_match_differences(
        [&](const Tensors& x) { return Tensors{route(x[0], {}, {}, options, false).weights}; },
        {logits});
  }
}

TEST(Route, StaysFiniteForExtremeLogits) {
  for (const auto type : {at::kDouble, at::kFloat}) {
    at::Tensor logits = at::zeros({2, 4}, type);
    logits[0] = at::tensor({-2000., 1500., -1500., 1499.}, type);
    logits[1] = at::tensor({-2000., -1900., -1800., -1700.}, type);
    for (const auto function :
         {ScoreFunction::kSoftmax, ScoreFunction::kSigmoid, ScoreFunction::kSqrtSoftplus}) {
      for (const bool renormalize : {false, true}) {
        const RouteOptions options{.top_k = 2,
                                   .score_function = function,
                                   .softmax_over_chosen = false,
                                   .renormalize = renormalize};
        const auto op = [&](const Tensors& x) {
          const Routes routes = route(x[0], {}, {}, options, true);
          return Tensors{routes.weights, routes.probabilities};
        };
        for (const at::Tensor& result : op({logits})) {
          EXPECT_TRUE(at::isfinite(result).all().item<bool>());
        }
        const Tensors grads =
            gradients(op, {logits}, {at::ones({2, 2}, type), at::ones({2, 4}, type)});
        EXPECT_TRUE(at::isfinite(grads[0]).all().item<bool>());
      }
    }
  }
}

TEST(Route, GivesTiesToTheLowestExpertAndGroup) {
  const RouteOptions options{.top_k = 3, .num_groups = 3, .group_top_k = 2, .scores_per_group = 2};
  const Routes routes = route(at::zeros({2, 6}), {}, {}, options, false);
  EXPECT_TRUE(at::equal(routes.expert_ids, at::tensor({0, 1, 2}, at::kLong).repeat({2, 1})));
}

TEST(Route, ChoosesDistinctExpertsFromNan) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const at::Tensor logits = at::full({1, 6}, nan, at::kDouble);
  const Routes routes = route(logits, {}, {}, {.top_k = 3}, false);
  EXPECT_TRUE(at::equal(routes.expert_ids[0], at::tensor({0, 1, 2}, at::kLong)));
}

TEST(Route, AcceptsNoTokens) {
  const PoisonNewTensors poison;
  const at::Tensor logits = at::zeros({0, 6}).requires_grad_();
  const Routes routes = route(logits, {}, {}, {.top_k = 2}, true);
  EXPECT_EQ(routes.expert_ids.sizes(), (std::vector<int64_t>{0, 2}));
  EXPECT_EQ(routes.probabilities.sizes(), (std::vector<int64_t>{0, 6}));
  (routes.weights.sum() + routes.probabilities.sum()).backward();
  EXPECT_EQ(logits.grad().sizes(), (std::vector<int64_t>{0, 6}));
}

TEST(Route, DoesNotDependOnThreads) {
  at::manual_seed(24);
  const at::Tensor logits = at::randn({3000, 16});
  const RouteOptions options{.top_k = 4,
                             .score_function = ScoreFunction::kSigmoid,
                             .renormalize = true,
                             .num_groups = 4,
                             .group_top_k = 2,
                             .scores_per_group = 2};
  expect_same_bytes_for_all_thread_counts([&] {
    const auto op = [&](const Tensors& x) {
      const Routes routes = route(x[0], {}, {}, options, true);
      return Tensors{routes.weights, routes.probabilities};
    };
    Tensors results = op({logits});
    const Tensors grads = gradients(op, {logits}, {at::ones({3000, 4}), logits});
    results.push_back(grads[0]);
    return results;
  });
}

std::string refusal(const RouteOptions& options, const at::Tensor& ids = {}) {
  return message_of([&] { route(at::zeros({2, 6}), {}, ids, options, false); });
}

TEST(Route, NamesWhatIsWrong) {
  EXPECT_EQ(refusal({.top_k = 7}), "route: top_k (7) must be 1 to num_experts (6)");
  EXPECT_EQ(refusal({.top_k = 2, .num_groups = 4}),
            "route: num_experts (6) must be a multiple of num_groups (4)");
  EXPECT_EQ(refusal({.top_k = 4, .num_groups = 2, .group_top_k = 1}),
            "route: group_top_k (1) of 2 groups of 3 experts must leave top_k (4) to choose from");
  EXPECT_EQ(refusal({.top_k = 2, .num_groups = 2, .group_top_k = 1, .scores_per_group = 4}),
            "route: scores_per_group (4) must be 1 to the 3 experts of a group");
  EXPECT_EQ(refusal({.top_k = 2}, at::tensor({0, 1, 2, 6}, at::kLong).view({2, 2})),
            "route: expert_ids must be 0 to 5, got 6 for token 1");
  EXPECT_EQ(refusal({.top_k = 2}, at::tensor({0, 1, 3, 3}, at::kLong).view({2, 2})),
            "route: expert_ids holds expert 3 twice for token 1");
  EXPECT_EQ(refusal({.top_k = 2}, at::zeros({2, 3}, at::kLong)),
            "route: expert_ids must have shape [2, 2], got [2, 3]");
  EXPECT_EQ(refusal({.top_k = 2}, at::zeros({2, 2})), "route: expert_ids must be contiguous int64");
  EXPECT_EQ(message_of([] {
              route(at::zeros({2, 6}, at::kBFloat16), {}, {}, {.top_k = 2}, false);
            }),
            "route: logits must be fp32 or fp64 on the CPU");
  EXPECT_EQ(message_of([] {
              route(at::zeros({2, 6}), at::zeros({5}), {}, {.top_k = 2}, false);
            }),
            "route: bias must have shape [6], got [5]");
}

}  // namespace
}  // namespace switchyard
