#include "moe/router.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include <gtest/gtest.h>

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include "base/error.h"
#include "base/random.h"
#include "ops/sinkhorn.h"
#include "ops/top_k.h"
#include "support/small_model.h"

namespace switchyard {
namespace {

constexpr int64_t kTokens = 50;
constexpr int64_t kHidden = 16;
constexpr int64_t kExperts = 6;

MoeConfig router_config() {
  MoeConfig config;
  config.num_experts = kExperts;
  config.top_k = 3;
  return config;
}

// A router with random weights and what it is applied to.
struct RouterCase {
  explicit RouterCase(const MoeConfig& moe, const RoutingConfig& routing = {})
      : config(config_of(moe, routing)) {}

  static Config config_of(const MoeConfig& moe, const RoutingConfig& routing = {}) {
    Config config;
    config.model.hidden_size = kHidden;
    config.model.init_std = 0.5;
    config.moe = moe;
    config.routing = routing;
    return config;
  }

  // A pass over a row of `num_tokens` tokens: a sequence of half of them, and another of the rest.
  static ForwardContext context(int64_t num_tokens, bool is_training) {
    ForwardContext context;
    context.table = SequenceTable::from_lengths({num_tokens / 2, num_tokens - num_tokens / 2});
    context.is_training = is_training;
    context.first_token = 1000;
    return context;
  }
  Routing route(const at::Tensor& rows, const at::Tensor& ids = {}) const {
    return router.forward(rows, ids, context(rows.size(0), false), {0, rows.size(0)});
  }
  Routing route_in_training(const at::Tensor& rows, const TokenRanges& own) const {
    return router.forward(own.select(rows), {}, context(rows.size(0), true), own);
  }
  Routing route_in_training() const { return route_in_training(tokens, {0, kTokens}); }

  Config config;
  std::unique_ptr<Groups> groups = Groups::single();
  Parameters parameters{*groups, Dtypes::fp64(), 5};
  Router router{Scope{parameters, "router"}, config, config.moe};
  at::Tensor tokens = at::sin(at::arange(kTokens * kHidden, at::kDouble) * 1.7).view({-1, kHidden});

  at::Tensor weight() const { return parameters.storages()[0]->master; }
};

double at2(const at::Tensor& values, int64_t row, int64_t column) {
  return values[row][column].item<double>();
}

// The definition, a token at a time: scores to choose by, and the weight of each expert if chosen.
using Scores = std::vector<double>;
void expect_routes(
    const RouterCase& c, const Routing& routing,
    const std::function<Scores(const Scores& logits)>& ranking,
    const std::function<Scores(const Scores& logits, const std::vector<int64_t>&)>& weights) {
  for (int64_t t = 0; t < kTokens; ++t) {
    Scores logits(kExperts, 0);
    for (int64_t e = 0; e < kExperts; ++e) {
      for (int64_t h = 0; h < kHidden; ++h) {
        logits[static_cast<size_t>(e)] += at2(c.tokens, t, h) * at2(c.weight(), e, h);
      }
    }
    const Scores rank = ranking(logits);
    std::vector<int64_t> ids(kExperts);
    std::iota(ids.begin(), ids.end(), 0);
    std::stable_sort(ids.begin(), ids.end(), [&](int64_t a, int64_t b) {
      return rank[static_cast<size_t>(a)] > rank[static_cast<size_t>(b)];
    });
    ids.resize(3);
    const Scores expected = weights(logits, ids);
    for (int64_t slot = 0; slot < 3; ++slot) {
      EXPECT_EQ(routing.expert_ids[t][slot].item<int64_t>(), ids[static_cast<size_t>(slot)]);
      EXPECT_NEAR(at2(routing.weights, t, slot), expected[static_cast<size_t>(slot)], 1e-12);
    }
  }
}

Scores pick(const Scores& scores, const std::vector<int64_t>& ids) {
  Scores chosen;
  for (const int64_t id : ids) {
    chosen.push_back(scores[static_cast<size_t>(id)]);
  }
  return chosen;
}

Scores softmax(Scores values) {
  double sum = 0;
  for (double& value : values) {
    value = std::exp(value);
    sum += value;
  }
  for (double& value : values) {
    value /= sum;
  }
  return values;
}

Scores normalized(Scores values) {
  const double sum = std::accumulate(values.begin(), values.end(), 0.0);
  for (double& value : values) {
    value /= sum;
  }
  return values;
}

Scores sigmoid(Scores values) {
  for (double& value : values) {
    value = 1 / (1 + std::exp(-value));
  }
  return values;
}

const auto kAsTheyAre = [](const Scores& logits) { return logits; };

TEST(Router, TakesSoftmaxOverTheChosenLogits) {
  const RouterCase c(router_config());
  expect_routes(c, c.route(c.tokens), kAsTheyAre,
                [](const Scores& logits, const std::vector<int64_t>& ids) {
                  return softmax(pick(logits, ids));
                });
}

TEST(Router, TakesTheChosenOfSoftmaxOverAllAndScales) {
  MoeConfig config = router_config();
  config.pre_softmax = true;
  config.scaling_factor = 2.5;
  const RouterCase c(config);
  expect_routes(c, c.route(c.tokens), kAsTheyAre,
                [](const Scores& logits, const std::vector<int64_t>& ids) {
                  Scores weights = pick(softmax(logits), ids);
                  for (double& weight : weights) {
                    weight *= 2.5;
                  }
                  return weights;
                });
}

TEST(Router, RenormalisesThePreSoftmaxWeights) {
  MoeConfig config = router_config();
  config.pre_softmax = true;
  config.renormalize = true;
  const RouterCase c(config);
  expect_routes(c, c.route(c.tokens), kAsTheyAre,
                [](const Scores& logits, const std::vector<int64_t>& ids) {
                  return normalized(pick(softmax(logits), ids));
                });
}

TEST(Router, UsesTheBiasToChooseAndNeverAsWeight) {
  MoeConfig config = router_config();
  config.score_function = ScoreFunction::kSigmoid;
  config.renormalize = true;
  config.expert_bias = true;
  const RouterCase c(config);
  const Scores bias = {0.4, -0.3, 0.0, 0.2, -0.1, -0.5};
  c.parameters.buffers()[0].tensor.copy_(at::tensor(bias, at::kDouble));
  expect_routes(
      c, c.route(c.tokens),
      [&](const Scores& logits) {
        Scores ranking = sigmoid(logits);
        for (size_t e = 0; e < ranking.size(); ++e) {
          ranking[e] += bias[e];
        }
        return ranking;
      },
      [](const Scores& logits, const std::vector<int64_t>& ids) {
        return normalized(pick(sigmoid(logits), ids));
      });
}

TEST(Router, ReusesExpertIdsThatAreGiven) {
  const RouterCase c(router_config());
  const at::Tensor ids = at::tensor({5, 0, 2}, at::kLong).repeat({kTokens, 1});
  const Routing routing = c.route(c.tokens, ids);
  EXPECT_TRUE(at::equal(routing.expert_ids, ids));
  EXPECT_TRUE(at::allclose(routing.weights.sum(-1), at::ones({kTokens}, at::kDouble)));
}

TEST(Router, GivesTiesToTheLowestId) {
  const RouterCase c(router_config());
  const Routing routing = c.route(at::zeros({2, kHidden}, at::kDouble));
  EXPECT_TRUE(at::equal(routing.expert_ids, at::tensor({0, 1, 2}, at::kLong).repeat({2, 1})));
}

TEST(Router, ComputesInFp32ForBf16Input) {
  const std::unique_ptr<Groups> groups = Groups::single();
  Parameters parameters(*groups, Dtypes::bf16(), 5);
  Config config = RouterCase::config_of(router_config());
  const Router router(Scope{parameters, "router"}, config, config.moe);
  const auto dtype_of = [](const Router& one) {
    const at::Tensor tokens = at::ones({4, kHidden}, at::kBFloat16);
    return one.forward(tokens, {}, RouterCase::context(4, false), {0, 4}).logits.scalar_type();
  };
  config.moe.router_dtype = RouterDtype::kFp64;
  const Router wide(Scope{parameters, "wide"}, config, config.moe);
  EXPECT_EQ(dtype_of(wide), at::kDouble);
  EXPECT_EQ(dtype_of(router), at::kFloat);
  const Routing routing = router.forward(at::ones({4, kHidden}, at::kBFloat16), {},
                                         RouterCase::context(4, false), {0, 4});
  EXPECT_EQ(routing.weights.scalar_type(), at::kFloat);
  EXPECT_EQ(routing.logits.scalar_type(), at::kFloat);
}

TEST(Router, MovesTheBiasByTheSignOfTheLoadError) {
  MoeConfig config = router_config();
  config.score_function = ScoreFunction::kSigmoid;
  config.expert_bias = true;
  config.bias_update_rate = 0.25;
  RouterCase c(config);
  c.router.update_expert_bias(at::tensor({10, 2, 6, 6, 6, 6}, at::kLong));  // mean 6
  EXPECT_TRUE(
      at::equal(c.router.expert_bias(), at::tensor({-0.25, 0.25, 0., 0., 0., 0.}, at::kDouble)));
}

TEST(Router, AddsNoiseInTrainingByTheNumberOfTheToken) {
  for (const RoutingConfig& routing :
       {RoutingConfig{.input_jitter = 0.2}, RoutingConfig{.logit_noise = 0.5},
        RoutingConfig{.method = RoutingMethod::kRandom}}) {
    const RouterCase c(router_config(), routing);
    const Routing quiet = c.route(c.tokens);
    const Routing noisy = c.route_in_training();
    EXPECT_FALSE(at::equal(quiet.weights, noisy.weights));
    EXPECT_TRUE(at::equal(noisy.weights, c.route_in_training().weights));
    // A part of the row gets the noise of its own tokens.
    const Routing part = c.route_in_training(c.tokens, {10, 30});
    EXPECT_TRUE(at::equal(part.expert_ids, noisy.expert_ids.slice(0, 10, 30)));
    EXPECT_TRUE(at::allclose(part.weights, noisy.weights.slice(0, 10, 30)));
  }
}

TEST(Router, JittersItsInput) {
  const RouterCase c(router_config(), {.input_jitter = 0.2});
  const RandomStream stream(1, "router.input_jitter");
  at::Tensor input = c.tokens.clone();
  for (int64_t t = 0; t < kTokens; ++t) {
    for (int64_t h = 0; h < kHidden; ++h) {
      const auto index = static_cast<uint64_t>((1000 + t) * kHidden + h);
      input[t][h] *= 0.8 + 0.4 * stream.uniform(index);
    }
  }
  EXPECT_TRUE(at::allclose(c.route_in_training().logits, at::linear(input, c.weight())));
}

TEST(Router, RoutesAtRandomAndHandsTheGradientOn) {
  const RouterCase c(router_config(), {.method = RoutingMethod::kRandom});
  const Routing routing = c.route_in_training();
  const at::Tensor counts = at::bincount(routing.expert_ids.flatten(), {}, kExperts);
  EXPECT_GT(counts.min().item<int64_t>(), 12);  // of 25 in the mean
  routing.weights.select(1, 0).sum().backward();
  EXPECT_GT(c.parameters.storages()[0]->leaf.grad().norm().item<double>(), 1e-3);
}

TEST(Router, ChoosesBySinkhornOfEachSequence) {
  for (const int64_t top_k : {int64_t{1}, int64_t{3}}) {
    MoeConfig config = router_config();
    config.top_k = top_k;
    const RouterCase c(config, {.method = RoutingMethod::kSinkhorn});
    const Routing routing = c.route_in_training();
    for (const int64_t start : {0, 25}) {
      const at::Tensor scores = sinkhorn(routing.logits.narrow(0, start, 25));
      EXPECT_TRUE(at::equal(routing.expert_ids.narrow(0, start, 25), top_k_ids(scores, top_k)));
    }
    const at::Tensor scores =
        top_k == 1 ? at::sigmoid(routing.logits) : at::softmax(routing.logits, -1);
    EXPECT_TRUE(at::allclose(routing.weights, scores.gather(1, routing.expert_ids)));
    // Outside training the best logits.
    EXPECT_TRUE(at::equal(c.route(c.tokens).expert_ids, top_k_ids(routing.logits, top_k)));
  }
}

TEST(Router, NamesItsInputWhenTheWidthIsWrong) {
  const RouterCase c(router_config());
  try {
    c.route(at::zeros({2, 3}, at::kDouble));
    FAIL();
  } catch (const ShapeError& error) {
    EXPECT_STREQ(error.what(), "router input must have shape [*, 16], got [2, 3]");
  }
}

}  // namespace
}  // namespace switchyard
