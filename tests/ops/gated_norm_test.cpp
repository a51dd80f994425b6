#include "ops/gated_norm.h"

#include <gtest/gtest.h>

#include <ATen/ATen.h>

#include "ops/op_checks.h"

namespace switchyard {
namespace {

constexpr double kEpsilon = 1e-5;
constexpr GateOrder kOrders[] = {GateOrder::kGateThenNorm, GateOrder::kNormThenGate};

// The gated norms of HF's Mamba-2, FalconH1 and Qwen3-Next, line by line.
at::Tensor reference_norm(const at::Tensor& x, const at::Tensor& gate, const at::Tensor& weight,
                          int64_t group_size, GateOrder order) {
  const at::Tensor open = at::silu(gate);
  const at::Tensor value = order == GateOrder::kGateThenNorm ? x * open : x;
  const at::Tensor groups = value.reshape({-1, group_size});
  const at::Tensor normed = groups * at::rsqrt(groups.pow(2).mean(-1, /*keepdim=*/true) + kEpsilon);
  const at::Tensor out = weight * normed.view(x.sizes());
  return order == GateOrder::kGateThenNorm ? out : out * open;
}

TEST(GatedNorm, EqualsTheReferenceInEveryDtype) {
  at::manual_seed(1);
  for (const GateOrder order : kOrders) {
    for (const auto& [width, group_size] :
         std::vector<std::pair<int64_t, int64_t>>{{1, 1}, {154, 77}, {128, 128}, {96, 16}}) {
      const at::Tensor x = at::randn({3, 25, width}, at::kDouble) * 3;
      const at::Tensor gate = at::randn({3, 25, width}, at::kDouble);
      const at::Tensor weight = at::randn({width}, at::kDouble);
      const at::Tensor expected = reference_norm(x, gate, weight, group_size, order);
      EXPECT_LE(relative_error(gated_norm(x, gate, weight, kEpsilon, group_size, order), expected),
                1e-14);
      const auto narrow = [&](at::ScalarType type) {
        return gated_norm(x.to(type), gate.to(type), weight.to(type), kEpsilon, group_size, order);
      };
      EXPECT_LE(relative_error(narrow(at::kFloat), expected), 1e-6);
      EXPECT_EQ(narrow(at::kBFloat16).scalar_type(), at::kBFloat16);
      EXPECT_LE(relative_error(narrow(at::kBFloat16), expected), 2e-2);
    }
  }
}

TEST(GatedNorm, GradientsMatchDifferences) {
  at::manual_seed(2);
  for (const GateOrder order : kOrders) {
    const Tensors inputs{at::randn({70, 6}, at::kDouble), at::randn({70, 6}, at::kDouble),
                         at::randn({6}, at::kDouble)};
    expect_gradients_match_differences(
        [&](const Tensors& in) {
          return Tensors{gated_norm(in[0], in[1], in[2], kEpsilon, 3, order)};
        },
        inputs);
  }
}

TEST(GatedNorm, GivesTheSameBytesForAllThreadCounts) {
  at::manual_seed(3);
  for (const auto type : {at::kDouble, at::kFloat, at::kBFloat16}) {
    const Tensors inputs{at::randn({300, 130}).to(type), at::randn({300, 130}).to(type),
                         at::randn({130}).to(type)};
    const at::Tensor probe = at::randn({300, 130}).to(type);
    expect_same_bytes_for_all_thread_counts([&] {
      const auto op = [](const Tensors& in) {
        return Tensors{gated_norm(in[0], in[1], in[2], kEpsilon, 65, GateOrder::kGateThenNorm)};
      };
      Tensors out = gradients(op, inputs, {probe});
      out.push_back(op(inputs)[0]);
      return out;
    });
  }
}

TEST(GatedNorm, AcceptsZeroRows) {
  const Tensors grads = gradients(
      [](const Tensors& in) {
        return Tensors{gated_norm(in[0], in[1], in[2], kEpsilon, 4, GateOrder::kNormThenGate)};
      },
      {at::zeros({0, 8}), at::zeros({0, 8}), at::ones({8})}, {at::zeros({0, 8})});
  EXPECT_EQ(grads[0].sizes(), at::IntArrayRef({0, 8}));
  EXPECT_TRUE(at::equal(grads[2], at::zeros({8})));
}

TEST(GatedNorm, RefusesInputsThatDoNotFit) {
  const auto norm = [](const at::Tensor& gate, int64_t group_size) {
    gated_norm(at::ones({2, 6}), gate, at::ones({6}), kEpsilon, group_size,
               GateOrder::kGateThenNorm);
  };
  EXPECT_EQ(message_of([&] {
              norm(at::ones({2, 5}), 3);
            }),
            "gated_norm: the gate must have the sizes of x");
  EXPECT_EQ(message_of([&] {
              norm(at::ones({2, 6}), 4);
            }),
            "gated_norm: groups of 4 features do not divide a width of 6");
  EXPECT_EQ(message_of([&] {
              norm(at::ones({2, 6}, at::kDouble), 3);
            }),
            "gated_norm: x is Float, the gate Double and weight Float; they must have one dtype");
}

}  // namespace
}  // namespace switchyard
