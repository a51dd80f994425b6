#include "ops/activation.h"

#include <cmath>
#include <limits>

#include <gtest/gtest.h>

#include <ATen/ATen.h>

#include "ops/op_checks.h"

namespace switchyard {
namespace {

// From libtorch's own operators, in fp64.
at::Tensor reference(const at::Tensor& gate_up, const at::Tensor& weights) {
  const at::Tensor wide = gate_up.to(at::kDouble);
  const int64_t ffn = gate_up.size(1) / 2;
  const at::Tensor out = at::silu(wide.slice(1, 0, ffn)) * wide.slice(1, ffn);
  return weights.defined() ? out * weights.to(at::kDouble).unsqueeze(1) : out;
}

// Half a unit in the last place of the result, and the error of the exponential.
double tolerance(at::ScalarType type) {
  return type == at::kDouble ? 1e-14 : type == at::kFloat ? 1e-6 : 4e-3;
}

TEST(WeightedActivation, EqualsSiluTimesUpTimesWeight) {
  at::manual_seed(3);
  const PoisonNewTensors poison;
  for (const auto type : {at::kDouble, at::kFloat, at::kBFloat16}) {
    for (const int64_t ffn : {1, 5, 16, 100}) {
      const at::Tensor gate_up = (at::randn({20, 2 * ffn}) * 3).to(type);
      const auto weight_type = type == at::kDouble ? at::kDouble : at::kFloat;
      for (const at::Tensor& weights : {at::Tensor(), at::rand({20}, weight_type)}) {
        const at::Tensor out = weighted_activation(gate_up, weights);
        EXPECT_EQ(out.scalar_type(), type);
        EXPECT_LE(relative_error(out, reference(gate_up, weights)), tolerance(type))
            << type << " ffn " << ffn;
      }
    }
  }
}

TEST(WeightedActivation, StaysFiniteAndPreciseForAnyGate) {
  for (const auto type : {at::kDouble, at::kFloat}) {
    const at::Tensor gate = at::linspace(-1000, 1000, 4001, type);
    const at::Tensor gate_up = at::stack({gate, at::ones_like(gate)}, 1);
    const at::Tensor out = weighted_activation(gate_up, at::Tensor());
    EXPECT_TRUE(at::isfinite(out).all().item<bool>());
    const at::Tensor expected = reference(gate_up, at::Tensor());
    // Relative where silu is not tiny, else absolute: the exponential ends at e^88.3, which leaves
    // -4.5e-36 of silu(-1000).
    const at::Tensor error =
        (out.to(at::kDouble) - expected).abs() / expected.abs().clamp_min(1e-29);
    EXPECT_LE(error.max().item<double>(), type == at::kDouble ? 1e-14 : 1e-6);
  }
}

// libtorch's own, in fp64; with a gate `input` holds gate and up.
at::Tensor reference_of(const MlpFunction& function, const at::Tensor& input) {
  const at::Tensor wide = input.to(at::kDouble);
  const auto halves = function.is_gated ? wide.chunk(2, 1) : std::vector{wide, wide};
  const bool clamps = function.clamp > 0;
  const at::Tensor x = clamps ? halves[0].clamp_max(function.clamp) : halves[0];
  at::Tensor value;
  switch (function.activation) {
    case Activation::kSilu:
      value = at::silu(x);
      break;
    case Activation::kGelu:
      value = at::gelu(x);
      break;
    case Activation::kGeluTanh:
      value = at::gelu(x, "tanh");
      break;
    case Activation::kRelu:
      value = at::relu(x);
      break;
    case Activation::kReluSquared:
      value = at::relu(x).square();
      break;
    case Activation::kQuickGelu:
      value = x * at::sigmoid(1.702 * x);
      break;
  }
  if (!function.is_gated) {
    return value;
  }
  const at::Tensor up = clamps ? halves[1].clamp(-function.clamp, function.clamp) : halves[1];
  return value * (up + function.offset);
}

std::vector<MlpFunction> all_functions() {
  std::vector<MlpFunction> all;
  for (int which = 0; which < kNumActivations; ++which) {
    for (const bool is_gated : {false, true}) {
      all.push_back({static_cast<Activation>(which), is_gated});
    }
  }
  for (int which = 0; which < kNumActivations; ++which) {
    all.push_back({static_cast<Activation>(which), true, 2.5, 1});
    all.push_back({static_cast<Activation>(which), true, 0, -0.5});
  }
  return all;
}

TEST(WeightedActivation, ComputesEachFunctionAndItsGradient) {
  at::manual_seed(5);
  const PoisonNewTensors poison;
  for (const MlpFunction& function : all_functions()) {
    const auto op = [&](const Tensors& x) {
      return Tensors{weighted_activation(x[0], {}, function)};
    };
    const auto expected_op = [&](const Tensors& x) {
      return Tensors{reference_of(function, x[0])};
    };
    for (const auto type : {at::kDouble, at::kFloat, at::kBFloat16}) {
      const at::Tensor input = (at::randn({20, 74}) * 3).to(type);
      const at::Tensor wide = input.to(at::kDouble);
      const at::Tensor expected = reference_of(function, wide);
      EXPECT_LE(relative_error(op({input})[0], expected), tolerance(type))
          << static_cast<int>(function.activation) << function.is_gated << type;
      const at::Tensor probe = at::randn(expected.sizes()).to(type);
      EXPECT_LE(relative_error(gradients(op, {input}, {probe})[0],
                               gradients(expected_op, {wide}, {probe.to(at::kDouble)})[0]),
                tolerance(type))
          << static_cast<int>(function.activation) << function.is_gated << type;
    }
  }
}

TEST(WeightedActivation, StaysFiniteAndPassesNanOnForEachFunction) {
  for (const MlpFunction& function : all_functions()) {
    for (const auto type : {at::kDouble, at::kFloat}) {
      const at::Tensor input =
          at::linspace(-1000, 1000, 2002, type).view({1, 2002}).requires_grad_();
      const at::Tensor out = weighted_activation(input, {}, function);
      EXPECT_TRUE(at::isfinite(out).all().item<bool>());
      out.sum().backward();
      EXPECT_TRUE(at::isfinite(input.grad()).all().item<bool>());
      at::Tensor with_nan = at::ones({1, 80}, type);
      with_nan[0][3] = std::numeric_limits<double>::quiet_NaN();
      const at::Tensor nan_out = weighted_activation(with_nan, {}, function);
      EXPECT_TRUE(at::isnan(nan_out[0][3]).item<bool>());
      EXPECT_EQ(at::isnan(nan_out).sum().item<int64_t>(), 1);
    }
  }
}

TEST(WeightedActivation, PassesNanOn) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  for (const auto type : {at::kDouble, at::kFloat, at::kBFloat16}) {
    at::Tensor gate_up = at::ones({1, 80}, type);
    gate_up[0][3] = nan;
    const at::Tensor out = weighted_activation(gate_up, at::Tensor());
    EXPECT_TRUE(at::isnan(out[0][3]).item<bool>());
    EXPECT_EQ(at::isnan(out).sum().item<int64_t>(), 1);
  }
}

TEST(WeightedActivation, HasTheGradientsOfDifferences) {
  at::manual_seed(4);
  const at::Tensor gate_up = at::randn({5, 22}, at::kDouble);
  expect_gradients_match_differences(
      [](const Tensors& x) { return Tensors{weighted_activation(x[0], x[1])}; },
      {gate_up, at::randn({5}, at::kDouble)});
  expect_gradients_match_differences(
      [](const Tensors& x) { return Tensors{weighted_activation(x[0], at::Tensor())}; }, {gate_up});
}

TEST(WeightedActivation, RoundsGradientsOnceInBf16) {
  const PoisonNewTensors poison;
  const at::Tensor gate_up = at::randn({30, 74}).to(at::kBFloat16);
  const at::Tensor weights = at::rand({30});
  const at::Tensor probe = at::randn({30, 37}).to(at::kBFloat16);
  const auto op = [](const Tensors& x) { return Tensors{weighted_activation(x[0], x[1])}; };
  const Tensors actual = gradients(op, {gate_up, weights}, {probe});
  const Tensors expected =
      gradients(op, {gate_up.to(at::kDouble), weights.to(at::kDouble)}, {probe.to(at::kDouble)});
  EXPECT_LE(relative_error(actual[0], expected[0]), tolerance(at::kBFloat16));
  EXPECT_EQ(actual[1].scalar_type(), at::kFloat);
  EXPECT_LE(relative_error(actual[1], expected[1]), 1e-6);
}

TEST(WeightedActivation, AcceptsNoRowsAndNoColumns) {
  EXPECT_EQ(weighted_activation(at::zeros({0, 8}), at::zeros({0})).sizes(),
            (std::vector<int64_t>{0, 4}));
  EXPECT_EQ(weighted_activation(at::zeros({3, 0}), at::zeros({3})).sizes(),
            (std::vector<int64_t>{3, 0}));
}

TEST(WeightedActivation, DoesNotDependOnThreads) {
  const at::Tensor gate_up = at::randn({600, 134});
  const at::Tensor weights = at::rand({600});
  const at::Tensor probe = at::randn({600, 67});
  const auto op = [](const Tensors& x) { return Tensors{weighted_activation(x[0], x[1])}; };
  expect_same_bytes_for_all_thread_counts([&] {
    Tensors results = gradients(op, {gate_up, weights}, {probe});
    results.push_back(weighted_activation(gate_up, weights));
    return results;
  });
}

TEST(WeightedActivation, NamesWhatIsWrong) {
  EXPECT_EQ(
      message_of([] {
        weighted_activation(at::zeros({2, 5}), at::zeros({2}));
      }),
      "weighted_activation: input holds gate and up, so that its columns must be even, got 5");
  EXPECT_EQ(message_of([] {
              weighted_activation(at::zeros({2, 4}), at::zeros({3}));
            }),
            "weighted_activation: weights must have shape [2], got [3]");
  EXPECT_EQ(message_of([] {
              weighted_activation(at::zeros({2, 4}), at::zeros({2}, at::kBFloat16));
            }),
            "weighted_activation: weights must be fp32 or fp64, got BFloat16");
}

}  // namespace
}  // namespace switchyard
