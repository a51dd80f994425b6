#include "ops/expert_mlp.h"

#include <gtest/gtest.h>

#include <ATen/ATen.h>

#include "ops/activation.h"
#include "ops/grouped_linear.h"
#include "ops/op_checks.h"

namespace switchyard {
namespace {

using Counts = std::vector<int64_t>;

struct Inputs {
  at::Tensor rows;
  at::Tensor gate_up_weight;
  at::Tensor down_weight;
  at::Tensor weights;

  Tensors list() const { return {rows, gate_up_weight, down_weight, weights}; }
};

Inputs random_inputs(const Counts& counts, int64_t hidden, int64_t ffn, at::ScalarType type) {
  const auto num_experts = static_cast<int64_t>(counts.size());
  int64_t received = 0;
  for (const int64_t rows : counts) {
    received += rows;
  }
  return {at::randn({received, hidden}).to(type),
          at::randn({num_experts, 2 * ffn, hidden}).to(type),
          at::randn({num_experts, hidden, ffn}).to(type),
          at::rand({received}, type == at::kDouble ? at::kDouble : at::kFloat)};
}

Tensors fused(const Tensors& x, const Counts& counts) {
  return {expert_mlp(x[0], x[1], x[2], x.size() > 3 ? x[3] : at::Tensor(), counts)};
}

// Its parts, one after the other.
Tensors composed(const Tensors& x, const Counts& counts) {
  const at::Tensor gate_up = grouped_linear(x[0], x[1], counts);
  const at::Tensor activated = weighted_activation(gate_up, x.size() > 3 ? x[3] : at::Tensor());
  return {grouped_linear(activated, x[2], counts)};
}

TEST(ExpertMlp, EqualsItsPartsBitForBit) {
  at::manual_seed(9);
  const PoisonNewTensors poison;
  const Counts counts = {0, 1, 700, 0, 35, 0};
  for (const auto type : {at::kDouble, at::kFloat, at::kBFloat16}) {
    for (const auto& [hidden, ffn] :
         std::vector<std::pair<int64_t, int64_t>>{{48, 64}, {33, 7}, {130, 70}}) {
      const Inputs inputs = random_inputs(counts, hidden, ffn, type);
      const at::Tensor probe = at::randn({736, hidden}).to(type);
      for (const size_t num_inputs : {size_t{4}, size_t{3}}) {
        Tensors list = inputs.list();
        list.resize(num_inputs);
        EXPECT_TRUE(same_bytes(fused(list, counts)[0], composed(list, counts)[0])) << type;
        const Tensors actual =
            gradients([&](const Tensors& x) { return fused(x, counts); }, list, {probe});
        const Tensors expected =
            gradients([&](const Tensors& x) { return composed(x, counts); }, list, {probe});
        for (size_t i = 0; i < actual.size(); ++i) {
          EXPECT_TRUE(same_bytes(actual[i], expected[i]))
              << type << " hidden " << hidden << " ffn " << ffn << " gradient " << i;
        }
      }
    }
  }
}

TEST(ExpertMlp, HasTheGradientsOfDifferences) {
  at::manual_seed(10);
  const Counts counts = {2, 0, 4};
  expect_gradients_match_differences([&](const Tensors& x) { return fused(x, counts); },
                                     random_inputs(counts, 5, 3, at::kDouble).list());
}

// A token at a time, from libtorch's own activations.
at::Tensor activation_of(const at::Tensor& x, Activation activation) {
  switch (activation) {
    case Activation::kSilu:
      return at::silu(x);
    case Activation::kGelu:
      return at::gelu(x);
    case Activation::kGeluTanh:
      return at::gelu(x, "tanh");
    case Activation::kRelu:
      return at::relu(x);
    case Activation::kReluSquared:
      return at::relu(x).square();
    case Activation::kQuickGelu:
      return x * at::sigmoid(1.702 * x);
  }
  return x;
}

at::Tensor row_by_row(const Tensors& x, const Counts& counts, const MlpFunction& function) {
  std::vector<at::Tensor> results;
  int64_t row = 0;
  for (size_t expert = 0; expert < counts.size(); ++expert) {
    const auto e = static_cast<int64_t>(expert);
    for (int64_t i = 0; i < counts[expert]; ++i, ++row) {
      const at::Tensor up = at::mv(x[1][e], x[0][row]) + x[4][e];
      const int64_t ffn = x[2].size(2);
      const at::Tensor activated =
          function.is_gated
              ? activation_of(up.narrow(0, 0, ffn), function.activation) * up.narrow(0, ffn, ffn)
              : activation_of(up, function.activation);
      results.push_back(x[3][row] * (at::mv(x[2][e], activated) + x[5][e]));
    }
  }
  return at::stack(results);
}

TEST(ExpertMlp, HasBiasesAndAnyActivation) {
  at::manual_seed(11);
  const PoisonNewTensors poison;
  const Counts counts = {3, 0, 2, 1};
  for (int which = 0; which < kNumActivations; ++which) {
    for (const bool is_gated : {false, true}) {
      const MlpFunction function{static_cast<Activation>(which), is_gated};
      Tensors inputs = random_inputs(counts, 5, 3, at::kDouble).list();
      inputs[1] = at::randn({4, 3 * function.num_inputs(), 5}, at::kDouble);
      inputs.push_back(at::randn({4, inputs[1].size(1)}, at::kDouble));
      inputs.push_back(at::randn({4, 5}, at::kDouble));
      const auto op = [&](const Tensors& x) {
        return Tensors{expert_mlp(
            x[0], x[1], x[2], x[3], counts,
            {.function = function, .up_bias = x[4], .down_bias = x[5], .first_biased_column = 0})};
      };
      EXPECT_LE(relative_error(op(inputs)[0], row_by_row(inputs, counts, function)), 1e-14)
          << which << is_gated;
      expect_gradients_match_differences(op, inputs, 1e-6);
    }
  }
}

TEST(ExpertMlp, AddsAPartOfTheSecondBias) {
  at::manual_seed(12);
  const Counts counts = {3, 2};
  for (const auto type : {at::kDouble, at::kFloat, at::kBFloat16}) {
    const Tensors inputs = random_inputs(counts, 40, 6, type).list();
    const at::Tensor bias = at::randn({2, 40}).to(type);
    const auto with = [&](const at::Tensor& part, int64_t first) {
      return expert_mlp(
          inputs[0], inputs[1], inputs[2], inputs[3], counts,
          {.function = {}, .up_bias = {}, .down_bias = part, .first_biased_column = first});
    };
    const at::Tensor whole = with(bias, 0);
    const at::Tensor none = fused(inputs, counts)[0];
    const at::Tensor part = with(bias.narrow(1, 17, 20), 17);
    EXPECT_TRUE(same_bytes(part.narrow(1, 17, 20), whole.narrow(1, 17, 20)));
    EXPECT_TRUE(same_bytes(part.narrow(1, 0, 17), none.narrow(1, 0, 17)));
    EXPECT_TRUE(same_bytes(part.narrow(1, 37, 3), none.narrow(1, 37, 3)));
    EXPECT_FALSE(same_bytes(whole, none));
  }
}

TEST(ExpertMlp, GivesOnlyTheGradientsThatAreAskedFor) {
  const Counts counts = {3, 2};
  const Inputs inputs = random_inputs(counts, 6, 4, at::kFloat);
  for (size_t wanted = 0; wanted < 4; ++wanted) {
    Tensors list = inputs.list();
    list[wanted] = list[wanted].detach().requires_grad_();
    const at::Tensor out = fused(list, counts)[0];
    const at::Tensor grad = torch::autograd::grad({out.sum()}, {list[wanted]})[0];
    const Tensors all = gradients([&](const Tensors& x) { return fused(x, counts); }, inputs.list(),
                                  {at::ones({5, 6})});
    EXPECT_TRUE(same_bytes(grad, all[wanted])) << "input " << wanted;
  }
}

TEST(ExpertMlp, AcceptsNoRows) {
  const PoisonNewTensors poison;
  const Counts counts = {0, 0};
  const Inputs inputs = random_inputs(counts, 6, 4, at::kFloat);
  EXPECT_EQ(fused(inputs.list(), counts)[0].sizes(), (std::vector<int64_t>{0, 6}));
  const Tensors grads = gradients([&](const Tensors& x) { return fused(x, counts); }, inputs.list(),
                                  {at::zeros({0, 6})});
  EXPECT_TRUE(at::equal(grads[1], at::zeros({2, 8, 6})));
  EXPECT_TRUE(at::equal(grads[2], at::zeros({2, 6, 4})));
}

TEST(ExpertMlp, DoesNotDependOnThreads) {
  const Counts counts = {900, 3, 0, 120};
  for (const auto type : {at::kFloat, at::kBFloat16}) {
    const Inputs inputs = random_inputs(counts, 70, 50, type);
    const at::Tensor probe = at::randn({1023, 70}).to(type);
    expect_same_bytes_for_all_thread_counts([&] {
      Tensors results =
          gradients([&](const Tensors& x) { return fused(x, counts); }, inputs.list(), {probe});
      results.push_back(fused(inputs.list(), counts)[0]);
      return results;
    });
  }
}

TEST(ExpertMlp, NamesWhatIsWrong) {
  const Inputs inputs = random_inputs({3, 2}, 6, 4, at::kFloat);
  EXPECT_EQ(message_of([&] {
              fused(inputs.list(), {3, 3});
            }),
            "expert_mlp: rows_per_expert adds up to 6, but there are 5 rows");
  EXPECT_EQ(message_of([&] {
              fused(inputs.list(), {6, -1});
            }),
            "expert_mlp: rows_per_expert must not be negative, got -1");
  Tensors list = inputs.list();
  list[1] = at::zeros({2, 7, 6});
  EXPECT_EQ(message_of([&] {
              fused(list, {3, 2});
            }),
            "expert_mlp: up_weight must have shape [2, 8, 6], got [2, 7, 6]");
  list = inputs.list();
  list[2] = at::zeros({2, 5, 4});
  EXPECT_EQ(message_of([&] {
              fused(list, {3, 2});
            }),
            "expert_mlp: down_weight must have shape [2, 6, *], got [2, 5, 4]");
  list = inputs.list();
  list[2] = list[2].to(at::kDouble);
  EXPECT_EQ(message_of([&] {
              fused(list, {3, 2});
            }),
            "expert_mlp: down_weight (Double) must have the dtype of rows (Float)");
  list = inputs.list();
  list[3] = at::zeros({4});
  EXPECT_EQ(message_of([&] {
              fused(list, {3, 2});
            }),
            "expert_mlp: weights must have shape [5], got [4]");
  list = inputs.list();
  const auto with_biases = [&](const at::Tensor& up_bias, const at::Tensor& down_bias) {
    return message_of([&] {
      expert_mlp(
          list[0], list[1], list[2], list[3], {3, 2},
          {.function = {}, .up_bias = up_bias, .down_bias = down_bias, .first_biased_column = 3});
    });
  };
  EXPECT_EQ(with_biases(at::zeros({2, 7}), {}),
            "expert_mlp: up_bias must have shape [2, 8], got [2, 7]");
  EXPECT_EQ(with_biases({}, at::zeros({2, 4})), "expert_mlp: down_bias is for columns 3 to 6 of 6");
}

}  // namespace
}  // namespace switchyard
