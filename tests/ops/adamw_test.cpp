#include "ops/adamw.h"

#include <cmath>
#include <limits>

#include <gtest/gtest.h>

#include <ATen/ATen.h>

#include "ops/op_checks.h"

namespace switchyard {
namespace {

AdamwState random_state(int64_t elements, at::ScalarType type, bool with_copy) {
  return {at::randn({elements}, at::kDouble).to(type), at::randn({elements}, at::kDouble).to(type),
          at::randn({elements}, at::kDouble).to(type), at::rand({elements}, at::kDouble).to(type),
          with_copy ? at::zeros({elements}, at::kBFloat16) : at::Tensor()};
}

AdamwState copy_of(const AdamwState& state) {
  return {state.master.clone(), state.gradient.clone(), state.first_moment.clone(),
          state.second_moment.clone(), state.copy.defined() ? state.copy.clone() : at::Tensor()};
}

AdamwOptions some_options(int64_t step) {
  return {.lr = 0.03,
          .beta1 = 0.85,
          .beta2 = 0.97,
          .epsilon = 1e-6,
          .weight_decay = 0.2,
          .gradient_scale = 0.5,
          .step = step};
}

TEST(Adamw, EqualsTheFormulaElementByElement) {
  at::manual_seed(1);
  for (const int64_t step : {1, 7, 1000}) {
    const AdamwOptions options = some_options(step);
    const AdamwState before = random_state(37, at::kDouble, false);
    const AdamwState after = copy_of(before);
    adamw_step(after, options);
    for (int64_t i = 0; i < 37; ++i) {
      const double gradient = 0.5 * before.gradient[i].item<double>();
      const double first = 0.85 * before.first_moment[i].item<double>() + 0.15 * gradient;
      const double second =
          0.97 * before.second_moment[i].item<double>() + 0.03 * gradient * gradient;
      const double unbiased_first = first / (1 - std::pow(0.85, step));
      const double unbiased_second = second / (1 - std::pow(0.97, step));
      const double decayed = before.master[i].item<double>() * (1 - 0.03 * 0.2);
      const double expected = decayed - 0.03 * unbiased_first / (std::sqrt(unbiased_second) + 1e-6);
      EXPECT_NEAR(after.first_moment[i].item<double>(), first, 1e-14);
      EXPECT_NEAR(after.second_moment[i].item<double>(), second, 1e-14);
      EXPECT_NEAR(after.master[i].item<double>(), expected, 1e-13);
      EXPECT_EQ(after.gradient[i].item<double>(), before.gradient[i].item<double>());
    }
  }
}

TEST(Adamw, EqualsTheFusedOperatorOfLibtorch) {
  at::manual_seed(2);
  for (const auto type : {at::kDouble, at::kFloat}) {
    const AdamwState ours = random_state(40001, type, false);
    const AdamwState theirs = copy_of(ours);
    AdamwOptions options = some_options(1);
    options.gradient_scale = 1;
    for (options.step = 1; options.step <= 5; ++options.step) {
      adamw_step(ours, options);
      at::_fused_adamw_(
          {theirs.master}, {theirs.gradient}, {theirs.first_moment}, {theirs.second_moment}, {},
          {at::full({}, static_cast<double>(options.step), at::kFloat)}, options.lr, options.beta1,
          options.beta2, options.weight_decay, options.epsilon, false, false);
    }
    const double tolerance = type == at::kDouble ? 1e-14 : 1e-6;
    EXPECT_LE(relative_error(ours.master, theirs.master), tolerance);
    EXPECT_LE(relative_error(ours.first_moment, theirs.first_moment), tolerance);
    EXPECT_LE(relative_error(ours.second_moment, theirs.second_moment), tolerance);
  }
}

TEST(Adamw, WritesTheRoundedCopy) {
  at::manual_seed(3);
  for (const auto type : {at::kDouble, at::kFloat}) {
    const AdamwState state = random_state(40001, type, true);
    adamw_step(state, some_options(3));
    EXPECT_TRUE(same_bytes(state.copy, state.master.to(at::kFloat).to(at::kBFloat16)));
  }
}

TEST(Adamw, GivesTheSameBytesForAllThreadCountsAndInPieces) {
  at::manual_seed(4);
  const AdamwState start = random_state(100003, at::kFloat, true);
  const auto whole = [&] {
    const AdamwState state = copy_of(start);
    adamw_step(state, some_options(2));
    return Tensors{state.master, state.first_moment, state.second_moment, state.copy};
  };
  expect_same_bytes_for_all_thread_counts(whole);
  const AdamwState pieces = copy_of(start);
  int64_t begin = 0;
  for (const int64_t length : {1, 40000, 0, 59999, 3}) {
    const auto piece = [&](const at::Tensor& tensor) { return tensor.narrow(0, begin, length); };
    adamw_step({piece(pieces.master), piece(pieces.gradient), piece(pieces.first_moment),
                piece(pieces.second_moment), piece(pieces.copy)},
               some_options(2));
    begin += length;
  }
  const Tensors expected = whole();
  EXPECT_TRUE(same_bytes(pieces.master, expected[0]));
  EXPECT_TRUE(same_bytes(pieces.copy, expected[3]));
}

TEST(Adamw, RefusesWhatDoesNotFit) {
  AdamwState state = random_state(4, at::kFloat, false);
  state.gradient = at::zeros({5});
  EXPECT_EQ(message_of([&] { adamw_step(state, {}); }),
            "adamw_step: gradient must be contiguous and have 4 elements like master, got 5");
  state.gradient = at::zeros({4}, at::kDouble);
  EXPECT_EQ(message_of([&] { adamw_step(state, {}); }),
            "adamw_step: gradient must be Float, got Double");
  state.master = at::zeros({4}, at::kBFloat16);
  EXPECT_EQ(message_of([&] { adamw_step(state, {}); }),
            "adamw_step: master must be fp32 or fp64, got BFloat16");
  EXPECT_EQ(message_of([] { adamw_step(random_state(1, at::kFloat, false), {.step = 0}); }),
            "adamw_step: step (0) counts from 1");
}

TEST(SumOfSquares, EqualsTheSumInFp64) {
  at::manual_seed(5);
  EXPECT_EQ(sum_of_squares(at::tensor({3.0F, 4.0F})), 25);
  EXPECT_EQ(sum_of_squares(at::zeros({0})), 0);
  for (const auto type : {at::kDouble, at::kFloat, at::kBFloat16}) {
    for (const int64_t size : {1, 31, 16384, 50001}) {
      const at::Tensor values = at::randn({size}).to(type);
      double expected = 0;
      const at::Tensor wide = values.to(at::kDouble);
      for (int64_t i = 0; i < size; ++i) {
        expected += std::pow(wide.const_data_ptr<double>()[i], 2);
      }
      EXPECT_NEAR(sum_of_squares(values), expected, 1e-12 * expected);
    }
  }
}

TEST(SumOfSquares, DoesNotOverflowInFp32AndShowsWhatIsNotFinite) {
  at::Tensor values = at::full({100}, 1e30F);
  EXPECT_NEAR(sum_of_squares(values) / 1e62, 1, 1e-6);
  values[70] = std::numeric_limits<float>::infinity();
  EXPECT_FALSE(std::isfinite(sum_of_squares(values)));
  values[70] = NAN;
  EXPECT_TRUE(std::isnan(sum_of_squares(values)));
}

TEST(SumOfSquares, GivesTheSameBytesForAllThreadCounts) {
  at::manual_seed(6);
  const at::Tensor values = at::randn({300001});
  expect_same_bytes_for_all_thread_counts(
      [&] { return Tensors{at::full({}, sum_of_squares(values), at::kDouble)}; });
}

}  // namespace
}  // namespace switchyard
