#include "moe/balance.h"

#include <cmath>

#include <gtest/gtest.h>

#include <ATen/ATen.h>

#include "ops/top_k.h"
#include "parallel/groups.h"

namespace switchyard {
namespace {

constexpr int64_t kExperts = 4;
constexpr int64_t kTopK = 2;

// Routing of tokens with these logits by softmax.
Routing routing_of(const at::Tensor& logits) {
  Routing routing;
  routing.logits = logits;
  routing.probabilities = at::softmax(logits, -1);
  routing.expert_ids = top_k_ids(logits.detach(), kTopK);
  return routing;
}

at::Tensor some_logits(int64_t tokens) {
  return at::sin(at::arange(tokens * kExperts, at::kDouble) * 2.3).view({tokens, kExperts}) * 2;
}

ForwardContext context_of(const std::vector<int64_t>& lengths, int64_t num_tokens,
                          double num_batch_tokens) {
  return {SequenceTable::from_lengths(lengths, num_tokens), {}, num_batch_tokens};
}

// E / (k T^2) x sum over experts of (sum of probabilities) x (tokens that chose it), of tokens
// begin to end.
double loss_of_sequence(const Routing& routing, int64_t begin, int64_t end) {
  double sum = 0;
  for (int64_t e = 0; e < kExperts; ++e) {
    double probability = 0;
    double count = 0;
    for (int64_t t = begin; t < end; ++t) {
      probability += routing.probabilities[t][e].item<double>();
      for (int64_t slot = 0; slot < kTopK; ++slot) {
        count += routing.expert_ids[t][slot].item<int64_t>() == e ? 1 : 0;
      }
    }
    sum += probability * count;
  }
  const auto length = static_cast<double>(end - begin);
  return kExperts / (kTopK * length * length) * sum;
}

TEST(SequenceBalanceLoss, IsTheMeanOverSequencesByLength) {
  const std::unique_ptr<Groups> groups = Groups::single();
  const Routing routing = routing_of(some_logits(11));
  // Sequences of 5 and 3, then three tokens of padding; 20 tokens in the whole batch.
  const ForwardContext context = context_of({5, 3}, 11, 20);
  const double expected =
      (5 * loss_of_sequence(routing, 0, 5) + 3 * loss_of_sequence(routing, 5, 8)) / 20;
  const at::Tensor loss = sequence_balance_loss(routing, context, {0, 11}, RowRanks(*groups));
  EXPECT_NEAR(loss.item<double>(), expected, 1e-13);
}

TEST(SequenceBalanceLoss, IsOneWhenBalanced) {
  const std::unique_ptr<Groups> groups = Groups::single();
  Routing routing = routing_of(at::zeros({4, kExperts}, at::kDouble));
  // Equal probabilities; a whisper decides that each expert is chosen twice.
  routing.probabilities =
      routing.probabilities +
      1e-9 * at::tensor({1., 1., 0., 0., 0., 0., 1., 1.}, at::kDouble).view({2, 4}).repeat({2, 1});
  const ForwardContext context = context_of({4}, 4, 4);
  EXPECT_NEAR(sequence_balance_loss(routing, context, {0, 4}, RowRanks(*groups)).item<double>(), 1,
              1e-8);
}

TEST(SequenceBalanceLoss, IsTheRatioOfExpertsToChoicesWhenAllTokensAgree) {
  const std::unique_ptr<Groups> groups = Groups::single();
  const at::Tensor logits = at::tensor({50., 49.9, 0., 0.}, at::kDouble).repeat({6, 1});
  const ForwardContext context = context_of({6}, 6, 6);
  EXPECT_NEAR(
      sequence_balance_loss(routing_of(logits), context, {0, 6}, RowRanks(*groups)).item<double>(),
      static_cast<double>(kExperts) / kTopK, 1e-9);
}

TEST(SequenceBalanceLoss, HasTheGradientOfItsDefinition) {
  const std::unique_ptr<Groups> groups = Groups::single();
  const ForwardContext context = context_of({4, 2}, 7, 6);
  const at::Tensor logits = some_logits(7).requires_grad_(true);
  const auto value = [&](const at::Tensor& at_logits) {
    Routing routing = routing_of(at_logits);
    return sequence_balance_loss(routing, context, {0, 7}, RowRanks(*groups));
  };
  value(logits).backward();
  constexpr double kStep = 1e-6;
  for (int64_t i = 0; i < logits.numel(); ++i) {
    at::Tensor up = logits.detach().clone();
    at::Tensor down = up.clone();
    up.view(-1)[i] += kStep;
    down.view(-1)[i] -= kStep;
    const double slope = (value(up) - value(down)).item<double>() / (2 * kStep);
    EXPECT_NEAR(logits.grad().view(-1)[i].item<double>(), slope, 1e-8) << i;
  }
}

// The definition in the header, of one accumulation step with loads of its own or of more.
double set_loss(const Routing& routing, int64_t num_real, const at::Tensor& loads,
                double batch_tokens) {
  double sum = 0;
  for (int64_t e = 0; e < kExperts; ++e) {
    double probability = 0;
    for (int64_t t = 0; t < num_real; ++t) {
      probability += routing.probabilities[t][e].item<double>();
    }
    sum += probability / static_cast<double>(num_real) * loads[e].item<double>() /
           loads[kExperts].item<double>();
  }
  return kExperts / static_cast<double>(kTopK) * sum * static_cast<double>(num_real) / batch_tokens;
}

TEST(SetBalanceLoss, TakesTheLoadsOfTheWholeStep) {
  const std::unique_ptr<Groups> groups = Groups::single();
  const Routing routing = routing_of(some_logits(11));
  const ForwardContext context = context_of({5, 3}, 11, 20);
  const at::Tensor loads =
      count_step_loads(routing, context, {0, 11}, (*groups)[GroupName::kDataContextTensor]);
  EXPECT_EQ(loads[kExperts].item<double>(), 8);
  EXPECT_EQ(loads.sum().item<double>(), 8 + 8 * kTopK);
  for (const at::Tensor& some : {loads, loads + at::tensor({7., 1., 0., 2., 5.}, at::kDouble)}) {
    EXPECT_NEAR(set_balance_loss(routing, context, {0, 11}, some, groups->ledger()).item<double>(),
                set_loss(routing, 8, some, 20), 1e-13);
  }
}

TEST(SetBalanceLoss, IsOneWhenBalanced) {
  const std::unique_ptr<Groups> groups = Groups::single();
  const Routing routing = routing_of(at::zeros({4, kExperts}, at::kDouble));
  const at::Tensor loads = at::tensor({2., 2., 2., 2., 4.}, at::kDouble);
  EXPECT_DOUBLE_EQ(set_balance_loss(routing, context_of({4}, 4, 4), {0, 4}, loads, groups->ledger())
                       .item<double>(),
                   1);
}

TEST(SetBalanceLoss, IsZeroInABatchOfPadding) {
  const std::unique_ptr<Groups> groups = Groups::single();
  const Routing routing = routing_of(some_logits(3));
  const ForwardContext context = context_of({}, 3, 8);
  const at::Tensor loads =
      count_step_loads(routing, context, {0, 3}, (*groups)[GroupName::kDataContextTensor]);
  EXPECT_EQ(set_balance_loss(routing, context, {0, 3}, loads, groups->ledger()).item<double>(), 0);
}

TEST(RouterZLoss, IsTheMeanSquaredLogSumOfRealTokens) {
  const std::unique_ptr<Groups> groups = Groups::single();
  const Routing routing = routing_of(some_logits(6));
  const ForwardContext context = context_of({4}, 6, 10);
  double expected = 0;
  for (int64_t t = 0; t < 4; ++t) {
    double sum = 0;
    for (int64_t e = 0; e < kExperts; ++e) {
      sum += std::exp(routing.logits[t][e].item<double>());
    }
    expected += std::log(sum) * std::log(sum) / 10;
  }
  EXPECT_NEAR(router_z_loss(routing, context, {0, 6}, groups->ledger()).item<double>(), expected,
              1e-13);
}

TEST(CountTokensPerExpert, LeavesPaddingOut) {
  Routing routing = routing_of(some_logits(5));
  routing.expert_ids = at::tensor({0, 1, 0, 2, 3, 1, 0, 1, 0, 1}, at::kLong).view({5, 2});
  const ForwardContext context = context_of({3}, 5, 3);
  EXPECT_TRUE(at::equal(count_tokens_per_expert(routing, context, {0, 5}),
                        at::tensor({2, 2, 1, 1}, at::kLong)));
}

TEST(Balance, CountsNothingInABatchOfPadding) {
  const std::unique_ptr<Groups> groups = Groups::single();
  const Routing routing = routing_of(some_logits(3));
  const ForwardContext context = context_of({}, 3, 8);
  EXPECT_EQ(sequence_balance_loss(routing, context, {0, 3}, RowRanks(*groups)).item<double>(), 0);
  EXPECT_EQ(router_z_loss(routing, context, {0, 3}, groups->ledger()).item<double>(), 0);
  EXPECT_EQ(count_tokens_per_expert(routing, context, {0, 3}).sum().item<int64_t>(), 0);
}

}  // namespace
}  // namespace switchyard
