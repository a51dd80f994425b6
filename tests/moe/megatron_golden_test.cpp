// Routing against Megatron-Core's router functions: tests/golden/megatron_router.
#include <gtest/gtest.h>

#include <ATen/ATen.h>

#include "checkpoint/safetensors.h"
#include "moe/balance.h"
#include "moe/capacity.h"
#include "ops/op_checks.h"
#include "ops/route.h"
#include "ops/sinkhorn.h"

namespace switchyard {
namespace {

constexpr int64_t kTokens = 24;
constexpr int64_t kExperts = 8;
constexpr int64_t kTopK = 3;

// Megatron takes softmax in fp32.
constexpr double kTolerance = 1e-6;

at::Tensor golden(const std::string& name) {
  static const SafetensorsFile file(SWITCHYARD_SOURCE_DIR
                                    "/tests/golden/megatron_router/expected.safetensors");
  return file.tensor(name).clone();
}

// Weights at their experts, zero elsewhere. [tokens, num_experts]
at::Tensor spread(const at::Tensor& ids, const at::Tensor& weights) {
  return at::zeros({kTokens, kExperts}, at::kDouble).scatter(1, ids, weights);
}

TEST(MegatronRouter, ChoosesAndWeighsAlike) {
  const at::Tensor logits = golden("logits");
  const auto expect_same = [&](const std::string& name, RouteOptions options,
                               const at::Tensor& bias = {}) {
    options.top_k = kTopK;
    const Routes routes = route(logits, bias, {}, options, false);
    EXPECT_LE(relative_error(spread(routes.expert_ids, routes.weights), golden("weights." + name)),
              kTolerance)
        << name;
  };
  expect_same("softmax", {});
  expect_same("pre_softmax", {.softmax_over_chosen = false, .scaling_factor = 2.5});
  expect_same("pre_softmax_groups", {.softmax_over_chosen = false,
                                     .num_groups = 4,
                                     .group_top_k = 3,
                                     .scores_per_group = kTopK / 3});
  expect_same(
      "sigmoid",
      {.score_function = ScoreFunction::kSigmoid, .renormalize = true, .scaling_factor = 2.5});
  expect_same("sigmoid_bias_groups",
              {.score_function = ScoreFunction::kSigmoid,
               .renormalize = true,
               .num_groups = 2,
               .group_top_k = 1,
               .scores_per_group = kTopK},
              at::linspace(-0.4, 0.3, kExperts, at::kFloat));
}

// A routing of all tokens as one sequence, one step and the whole batch.
struct OneSet {
  explicit OneSet(ScoreFunction function) {
    const Routes routes = route(logits, {}, {}, {.top_k = kTopK, .score_function = function}, true);
    routing = {.expert_ids = routes.expert_ids,
               .weights = routes.weights,
               .logits = logits,
               .probabilities = routes.probabilities,
               .kept_ids = {},
               .padding_rows = {}};
    context.table = SequenceTable::from_lengths({kTokens});
    context.num_batch_tokens = kTokens;
  }

  at::Tensor logits = golden("logits").requires_grad_();
  std::unique_ptr<Groups> groups = Groups::single();
  Routing routing;
  ForwardContext context;
  TokenRanges range{0, kTokens};
};

TEST(MegatronRouter, HasTheSameBalanceLossesAndGradients) {
  for (const auto& [name, function] :
       {std::pair{"softmax", ScoreFunction::kSoftmax}, {"sigmoid", ScoreFunction::kSigmoid}}) {
    const std::string key = std::string("balance.") + name;
    for (const bool is_set : {false, true}) {
      const OneSet c(function);
      const at::Tensor loss =
          is_set ? set_balance_loss(c.routing, c.context, c.range,
                                    count_step_loads(c.routing, c.context, c.range,
                                                     (*c.groups)[GroupName::kDataContextTensor]),
                                    c.groups->ledger())
                 : sequence_balance_loss(c.routing, c.context, c.range, RowRanks(*c.groups));
      EXPECT_NEAR(loss.item<double>(), golden(key).item<double>(), kTolerance) << key;
      loss.backward();
      EXPECT_LE(relative_error(c.logits.grad(), golden("grad." + key)), kTolerance) << key;
    }
  }
}

TEST(MegatronRouter, HasTheSameZLossAndGradient) {
  const OneSet c(ScoreFunction::kSoftmax);
  const at::Tensor loss = router_z_loss(c.routing, c.context, c.range, c.groups->ledger());
  EXPECT_NEAR(loss.item<double>(), golden("z_loss").item<double>(), 1e-12);
  loss.backward();
  EXPECT_LE(relative_error(c.logits.grad(), golden("grad.z_loss")), 1e-12);
}

TEST(MegatronRouter, BalancesAlikeBySinkhorn) {
  EXPECT_LE(relative_error(sinkhorn(golden("logits")), golden("sinkhorn")), 1e-12);
}

TEST(MegatronRouter, DropsTheSameCopies) {
  const OneSet c(ScoreFunction::kSoftmax);
  const Routes routes =
      route(c.logits.detach(), {}, {}, {.top_k = kTopK, .softmax_over_chosen = false}, false);
  Routing routing = c.routing;
  routing.expert_ids = routes.expert_ids;
  routing.weights = routes.weights;
  const KeptCopies kept =
      keep_capacity(routing, {.capacity_factor = 1}, c.context.table, c.range, RowRanks(*c.groups));
  const at::Tensor weights = routing.weights * kept.expert_ids.ge(0);
  EXPECT_LE(relative_error(spread(routing.expert_ids, weights), golden("capacity")), kTolerance);
  EXPECT_EQ(kept.num_dropped, kept.expert_ids.lt(0).sum().item<int64_t>());
  EXPECT_GT(kept.num_dropped, 0);
}

}  // namespace
}  // namespace switchyard
