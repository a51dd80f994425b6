#include "ops/rope.h"

#include <cmath>

#include <gtest/gtest.h>

#include <ATen/ATen.h>

#include "ops/op_checks.h"

namespace switchyard {
namespace {

// Pair (i, i + half) of each head as a complex number, times exp(i angle).
at::Tensor reference_rotate(const at::Tensor& x, const at::Tensor& positions, int64_t rotary_dim,
                            double base) {
  at::Tensor out = x.clone();
  const int64_t half = rotary_dim / 2;
  for (int64_t token = 0; token < x.size(0); ++token) {
    for (int64_t head = 0; head < x.size(1); ++head) {
      for (int64_t i = 0; i < half; ++i) {
        const double frequency =
            std::pow(base, -2.0 * static_cast<double>(i) / static_cast<double>(rotary_dim));
        const double angle = positions[token].item<double>() * frequency;
        const double a = x[token][head][i].item<double>();
        const double b = x[token][head][i + half].item<double>();
        out[token][head][i] = a * std::cos(angle) - b * std::sin(angle);
        out[token][head][i + half] = b * std::cos(angle) + a * std::sin(angle);
      }
    }
  }
  return out;
}

TEST(Rope, EqualsTheRotationOfPairs) {
  at::manual_seed(1);
  const at::Tensor x = at::randn({7, 3, 10}, at::kDouble);
  const at::Tensor positions = at::tensor({0, 1, 2, 0, 19, 5, 5}, at::kLong);
  const auto table = make_rotary_table(20, 10, 100.0, at::kDouble);
  const at::Tensor expected = reference_rotate(x, positions, 10, 100.0);
  EXPECT_LE(relative_error(rotate(x, positions, table), expected), 1e-14);
  const auto table32 = make_rotary_table(20, 10, 100.0, at::kFloat);
  EXPECT_LE(relative_error(rotate(x.to(at::kFloat), positions, table32), expected), 2e-6);
  const at::Tensor x16 = x.to(at::kBFloat16);
  const at::Tensor rotated16 = rotate(x16, positions, table32);
  EXPECT_EQ(rotated16.scalar_type(), at::kBFloat16);
  EXPECT_LE(relative_error(rotated16, reference_rotate(x16.to(at::kDouble), positions, 10, 100.0)),
            1.0 / 256);
}

TEST(Rope, KeepsTheDimsThatTheTableDoesNotCover) {
  at::manual_seed(2);
  const at::Tensor x = at::randn({4, 2, 11}, at::kDouble);
  const at::Tensor positions = at::arange(4, at::kLong);
  const at::Tensor out = rotate(x, positions, make_rotary_table(4, 6, 10.0, at::kDouble));
  EXPECT_LE(relative_error(out, reference_rotate(x, positions, 6, 10.0)), 1e-14);
  EXPECT_TRUE(at::equal(out.narrow(2, 6, 5), x.narrow(2, 6, 5)));
}

TEST(Rope, ReadsViewsOfAFusedProjection) {
  at::manual_seed(3);
  const at::Tensor qkv = at::randn({5, 8 * 4});
  const at::Tensor k = qkv.narrow(1, 4 * 4, 2 * 4).unflatten(1, {2, 4});
  const at::Tensor positions = at::arange(5, at::kLong);
  const auto table = make_rotary_table(5, 4, 10000.0, at::kFloat);
  EXPECT_TRUE(same_bytes(rotate(k, positions, table), rotate(k.contiguous(), positions, table)));
  const at::Tensor turned = qkv.unflatten(1, {4, 8}).transpose(1, 2);  // head_dim not adjacent
  EXPECT_TRUE(
      same_bytes(rotate(turned, positions, table), rotate(turned.contiguous(), positions, table)));
}

TEST(Rope, RoundsFrequenciesAndAnglesAsTheTransformersLibraryDoes) {
  // inv_freq = 1 / base^(2i / dim) in fp32, angle = position x inv_freq in fp32, then cos.
  const auto table = make_rotary_table(5000, 8, 10000.0, at::kFloat);
  const at::Tensor inv_freq = 1.0 / at::pow(10000.0, at::arange(0, 8, 2).to(at::kFloat) / 8.0);
  const at::Tensor angles = at::arange(5000).to(at::kFloat).unsqueeze(1) * inv_freq.unsqueeze(0);
  EXPECT_LE((table.cosine - angles.cos()).abs().max().item<double>(), 2e-7);
  EXPECT_LE((table.sine - angles.sin()).abs().max().item<double>(), 2e-7);
}

TEST(Rope, GradientIsTheRotationBack) {
  at::manual_seed(4);
  const at::Tensor positions = at::tensor({3, 0, 6}, at::kLong);
  const auto table = make_rotary_table(7, 4, 10.0, at::kDouble);
  const auto op = [&](const Tensors& in) { return Tensors{rotate(in[0], positions, table)}; };
  const Tensors inputs{at::randn({3, 2, 6}, at::kDouble)};
  expect_gradients_match_differences(op, inputs);
  const Tensors back = gradients(op, inputs, {op(inputs)[0]});
  EXPECT_LE(relative_error(back[0], inputs[0]), 1e-15);
}

TEST(Rope, GivesTheSameBytesForAllThreadCounts) {
  at::manual_seed(5);
  for (const auto type : {at::kDouble, at::kFloat, at::kBFloat16}) {
    const at::Tensor x = at::randn({999, 4, 32}).to(type);
    const at::Tensor positions = at::arange(999, at::kLong);
    const auto table = make_rotary_table(999, 32, 10000.0, type);
    expect_same_bytes_for_all_thread_counts([&] {
      const auto op = [&](const Tensors& in) { return Tensors{rotate(in[0], positions, table)}; };
      return Tensors{op({x})[0], gradients(op, {x}, {x})[0]};
    });
  }
}

TEST(Rope, AcceptsZeroTokens) {
  const auto table = make_rotary_table(4, 4, 10.0, at::kFloat);
  EXPECT_EQ(rotate(at::zeros({0, 2, 4}), at::zeros({0}, at::kLong), table).numel(), 0);
}

TEST(Rope, RefusesWhatDoesNotFit) {
  const auto table = make_rotary_table(4, 4, 10.0, at::kFloat);
  const at::Tensor positions = at::tensor({0, 4}, at::kLong);
  EXPECT_EQ(message_of([&] {
              rotate(at::zeros({2, 1, 4}), positions, table);
            }),
            "rotate: position 4 of token 1 is outside the table of 4 positions");
  EXPECT_EQ(message_of([&] {
              rotate(at::zeros({2, 1, 2}), positions, table);
            }),
            "rotate: the table's rotary dim (4) exceeds head_dim (2)");
  EXPECT_EQ(message_of([&] {
              rotate(at::zeros({2, 1, 4}, at::kDouble), positions, table);
            }),
            "rotate: the table is Float, which does not serve x of Double");
  EXPECT_EQ(message_of([&] {
              rotate(at::zeros({2, 1, 4}), positions.to(at::kInt), table);
            }),
            "rotate: positions must be int64, got Int");
  EXPECT_EQ(message_of([] { make_rotary_table(4, 5, 10.0, at::kFloat); }),
            "the rotary dim (5) must be even and above 0");
}

TEST(Rope, LeavesEveryHeadAloneWithoutRotaryDims) {
  const at::Tensor x = at::randn({3, 2, 5});
  const RotaryTable table = make_rotary_table(4, at::empty({0}, at::kDouble), at::kFloat);
  EXPECT_TRUE(at::equal(rotate(x, at::arange(3, at::kLong), table), x));
}

}  // namespace
}  // namespace switchyard
