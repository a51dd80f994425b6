#include "ops/rms_norm.h"

#include <cmath>

#include <gtest/gtest.h>

#include <ATen/ATen.h>

#include "ops/op_checks.h"

namespace switchyard {
namespace {

constexpr double kEpsilon = 1e-5;

// HF's LlamaRMSNorm, line by line.
at::Tensor reference_norm(const at::Tensor& x, const at::Tensor& weight) {
  const at::Tensor wide = x.scalar_type() == at::kDouble ? x : x.to(at::kFloat);
  const at::Tensor variance = wide.pow(2).mean(-1, /*keepdim=*/true);
  return weight * (wide * at::rsqrt(variance + kEpsilon)).to(x.scalar_type());
}

TEST(RmsNorm, EqualsHandArithmetic) {
  const at::Tensor x = at::tensor({3.0, 4.0}, at::kDouble).view({1, 2});
  const at::Tensor weight = at::tensor({2.0, 10.0}, at::kDouble);
  const at::Tensor y = rms_norm(x, weight, 0);  // rms = sqrt(12.5)
  EXPECT_NEAR(y[0][0].item<double>(), 6 / std::sqrt(12.5), 1e-15);
  EXPECT_NEAR(y[0][1].item<double>(), 40 / std::sqrt(12.5), 1e-15);
}

TEST(RmsNorm, EqualsTheReferenceInEveryDtype) {
  at::manual_seed(1);
  // 77 is no multiple of any vector's length; three dims.
  for (const int64_t hidden : {1, 16, 77, 128, 512}) {
    const at::Tensor x = at::randn({3, 5, hidden}, at::kDouble) * 3;
    const at::Tensor weight = at::randn({hidden}, at::kDouble);
    const at::Tensor expected = reference_norm(x, weight);
    EXPECT_LE(relative_error(rms_norm(x, weight, kEpsilon), expected), 1e-15);
    const at::Tensor narrow = rms_norm(x.to(at::kFloat), weight.to(at::kFloat), kEpsilon);
    EXPECT_EQ(narrow.scalar_type(), at::kFloat);
    EXPECT_LE(relative_error(narrow, expected), 1e-6);
    const at::Tensor x16 = x.to(at::kBFloat16);
    const at::Tensor weight16 = weight.to(at::kBFloat16);
    // The same roundings as the reference's: at most one unit of bf16 apart.
    EXPECT_LE(relative_error(rms_norm(x16, weight16, kEpsilon), reference_norm(x16, weight16)),
              1.0 / 128);
  }
}

TEST(RmsNorm, GradientsMatchDifferences) {
  at::manual_seed(2);
  const Tensors inputs{at::randn({70, 5}, at::kDouble), at::randn({5}, at::kDouble)};
  expect_gradients_match_differences(
      [](const Tensors& in) { return Tensors{rms_norm(in[0], in[1], kEpsilon)}; }, inputs);
}

TEST(RmsNorm, GradientsEqualThoseOfTheReferenceInLowerPrecision) {
  at::manual_seed(3);
  const at::Tensor x = at::randn({200, 77}, at::kDouble);
  const at::Tensor weight = at::randn({77}, at::kDouble);
  const at::Tensor probe = at::randn({200, 77}, at::kDouble);
  const auto reference = [](const Tensors& in) { return Tensors{reference_norm(in[0], in[1])}; };
  const auto ours = [](const Tensors& in) { return Tensors{rms_norm(in[0], in[1], kEpsilon)}; };
  for (const auto type : {at::kFloat, at::kBFloat16}) {
    const Tensors inputs{x.to(type), weight.to(type)};
    const Tensors actual = gradients(ours, inputs, {probe.to(type)});
    const Tensors expected =
        gradients(reference, {inputs[0].to(at::kDouble), inputs[1].to(at::kDouble)},
                  {probe.to(type).to(at::kDouble)});
    for (size_t i = 0; i < 2; ++i) {
      EXPECT_EQ(actual[i].scalar_type(), type);
      EXPECT_LE(relative_error(actual[i], expected[i]), type == at::kFloat ? 1e-6 : 6e-3);
    }
  }
}

// HF's GemmaRMSNorm: the weight is kept as w - 1, and nothing is rounded before the end.
TEST(RmsNorm, PlusOneEqualsTheReferenceWithGradients) {
  at::manual_seed(6);
  const auto reference = [](const Tensors& in) {
    const at::Tensor variance = in[0].pow(2).mean(-1, /*keepdim=*/true);
    return Tensors{in[0] * at::rsqrt(variance + kEpsilon) * (1 + in[1])};
  };
  const auto ours = [](const Tensors& in) {
    return Tensors{rms_norm(in[0], in[1], kEpsilon, NormWeight::kPlusOne)};
  };
  const at::Tensor x = at::randn({200, 77}, at::kDouble);
  const at::Tensor weight = at::randn({77}, at::kDouble);
  const at::Tensor probe = at::randn({200, 77}, at::kDouble);
  for (const auto type : {at::kDouble, at::kFloat, at::kBFloat16}) {
    const Tensors inputs{x.to(type), weight.to(type)};
    const Tensors wide{inputs[0].to(at::kDouble), inputs[1].to(at::kDouble)};
    // bf16: half a unit of 2^-8, forward.
    const double forward = type == at::kDouble ? 1e-14 : type == at::kFloat ? 1e-6 : 1.0 / 256;
    EXPECT_LE(relative_error(ours(inputs)[0], reference(wide)[0]), forward) << type;
    const Tensors actual = gradients(ours, inputs, {probe.to(type)});
    const Tensors expected = gradients(reference, wide, {probe.to(type).to(at::kDouble)});
    const double backward = type == at::kDouble ? 1e-13 : type == at::kFloat ? 1e-6 : 6e-3;
    for (size_t i = 0; i < 2; ++i) {
      EXPECT_LE(relative_error(actual[i], expected[i]), backward) << type << i;
    }
  }
}

TEST(RmsNorm, GivesTheSameBytesForAllThreadCounts) {
  at::manual_seed(4);
  for (const auto type : {at::kDouble, at::kFloat, at::kBFloat16}) {
    const Tensors inputs{at::randn({1000, 130}).to(type), at::randn({130}).to(type)};
    const at::Tensor probe = at::randn({1000, 130}).to(type);
    expect_same_bytes_for_all_thread_counts([&] {
      const auto op = [](const Tensors& in) { return Tensors{rms_norm(in[0], in[1], kEpsilon)}; };
      Tensors out = gradients(op, inputs, {probe});
      out.push_back(op(inputs)[0]);
      return out;
    });
  }
}

TEST(RmsNorm, AcceptsZeroRows) {
  const Tensors grads =
      gradients([](const Tensors& in) { return Tensors{rms_norm(in[0], in[1], kEpsilon)}; },
                {at::zeros({0, 8}), at::ones({8})}, {at::zeros({0, 8})});
  EXPECT_EQ(grads[0].sizes(), at::IntArrayRef({0, 8}));
  EXPECT_TRUE(at::equal(grads[1], at::zeros({8})));
}

TEST(RmsNorm, RefusesWeightsThatDoNotFit) {
  EXPECT_EQ(message_of([] {
              rms_norm(at::ones({2, 4}), at::ones({4}, at::kDouble), kEpsilon);
            }),
            "rms_norm: weight is Double, but x is Float");
  EXPECT_EQ(message_of([] {
              rms_norm(at::ones({2, 4}), at::ones({5}), kEpsilon);
            }),
            "rms_norm: weight must have shape [4], got [5]");
  EXPECT_EQ(message_of([] {
              rms_norm(at::ones({2, 0}), at::ones({0}), kEpsilon);
            }),
            "rms_norm: x must have a hidden size above 0");
  EXPECT_EQ(message_of([] { rms_norm(at::ones({}), at::ones({1}), kEpsilon); }),
            "rms_norm: x must have at least one dim, got []");
}

TEST(AddRmsNorm, EqualsTheNormOfTheSum) {
  at::manual_seed(5);
  for (const auto type : {at::kDouble, at::kFloat, at::kBFloat16}) {
    const at::Tensor x = at::randn({9, 50}).to(type);
    const at::Tensor residual = at::randn({9, 50}).to(type);
    const at::Tensor weight = at::randn({50}).to(type);
    const AddRmsNormOutput out = add_rms_norm(x, residual, weight, kEpsilon);
    EXPECT_TRUE(same_bytes(out.sum, x + residual));
    EXPECT_TRUE(same_bytes(out.normed, rms_norm(x + residual, weight, kEpsilon)));
  }
}

TEST(AddRmsNorm, GradientsMatchDifferences) {
  at::manual_seed(6);
  const Tensors inputs{at::randn({70, 5}, at::kDouble), at::randn({70, 5}, at::kDouble),
                       at::randn({5}, at::kDouble)};
  expect_gradients_match_differences(
      [](const Tensors& in) {
        const AddRmsNormOutput out = add_rms_norm(in[0], in[1], in[2], kEpsilon);
        return Tensors{out.sum, out.normed};
      },
      inputs);
}

TEST(AddRmsNorm, PassesTheGradientOnWhenOnlyOneOutputIsUsed) {
  at::manual_seed(7);
  const Tensors inputs{at::randn({4, 6}, at::kDouble), at::randn({4, 6}, at::kDouble),
                       at::randn({6}, at::kDouble)};
  expect_gradients_match_differences(
      [](const Tensors& in) { return Tensors{add_rms_norm(in[0], in[1], in[2], kEpsilon).normed}; },
      inputs);
  const at::Tensor x = inputs[0].detach().clone().requires_grad_();
  const at::Tensor probe = at::randn({4, 6}, at::kDouble);
  const Tensors grads =
      torch::autograd::grad({add_rms_norm(x, inputs[1], inputs[2], kEpsilon).sum}, {x}, {probe});
  EXPECT_TRUE(at::equal(grads[0], probe));
}

TEST(AddRmsNorm, RefusesAResidualOfAnotherShape) {
  EXPECT_EQ(message_of([] {
              add_rms_norm(at::ones({2, 4}), at::ones({1, 4}), at::ones({4}), kEpsilon);
            }),
            "add_rms_norm: residual must have the sizes and dtype of x");
}

}  // namespace
}  // namespace switchyard
