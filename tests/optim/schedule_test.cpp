#include "optim/schedule.h"

#include <cmath>

#include <gtest/gtest.h>

namespace switchyard {
namespace {

OptimizerConfig config(LrSchedule schedule, int64_t warmup_steps) {
  OptimizerConfig made;
  made.lr = 0.8;
  made.min_lr = 0.2;
  made.warmup_steps = warmup_steps;
  made.schedule = schedule;
  return made;
}

OptimizerConfig wsd(DecayShape shape, int64_t decay_steps) {
  OptimizerConfig made = config(LrSchedule::kWsd, 4);
  made.decay_shape = shape;
  made.decay_steps = decay_steps;
  return made;
}

constexpr LrSchedule kAll[] = {LrSchedule::kConstant, LrSchedule::kLinear, LrSchedule::kCosine,
                               LrSchedule::kInverseSqrt, LrSchedule::kWsd};

TEST(LearningRate, RisesLinearlyFromTheFirstStep) {
  for (const LrSchedule schedule : kAll) {
    const OptimizerConfig optimizer = config(schedule, 4);
    EXPECT_DOUBLE_EQ(learning_rate(optimizer, 0, 100), 0.2);
    EXPECT_DOUBLE_EQ(learning_rate(optimizer, 1, 100), 0.4);
    EXPECT_DOUBLE_EQ(learning_rate(optimizer, 2, 100), 0.6);
    EXPECT_EQ(learning_rate(optimizer, 3, 100), 0.8);
  }
}

TEST(LearningRate, RisesFromAnInitialRate) {
  OptimizerConfig optimizer = config(LrSchedule::kConstant, 4);
  optimizer.initial_lr = 0.4;
  EXPECT_DOUBLE_EQ(learning_rate(optimizer, 0, 100), 0.5);
  EXPECT_DOUBLE_EQ(learning_rate(optimizer, 2, 100), 0.7);
  EXPECT_DOUBLE_EQ(learning_rate(optimizer, 3, 100), 0.8);
  optimizer.warmup_steps = 0;  // nothing to rise
  EXPECT_EQ(learning_rate(optimizer, 0, 100), 0.8);
}

TEST(LearningRate, StaysAfterTheWarmUpWhenConstant) {
  const OptimizerConfig optimizer = config(LrSchedule::kConstant, 4);
  for (const int64_t step : {4, 50, 99, 100}) {
    EXPECT_EQ(learning_rate(optimizer, step, 100), 0.8);
  }
}

TEST(LearningRate, FallsAlongALineToTheMinimumAtTheLastStep) {
  const OptimizerConfig optimizer = config(LrSchedule::kLinear, 4);
  const int64_t total = 4 + 6;
  EXPECT_NEAR(learning_rate(optimizer, 3 + 1, total), 0.7, 1e-15);
  EXPECT_NEAR(learning_rate(optimizer, 3 + 3, total), 0.5, 1e-15);
  EXPECT_NEAR(learning_rate(optimizer, 3 + 5, total), 0.3, 1e-15);
  EXPECT_EQ(learning_rate(optimizer, total - 1, total), 0.2);
  EXPECT_EQ(learning_rate(optimizer, total + 5, total), 0.2);
}

// cos of 60, 90, 120 and 180 degrees: 1/2, 0, -1/2, -1.
TEST(LearningRate, FallsAlongACosineToTheMinimumAtTheLastStep) {
  const OptimizerConfig optimizer = config(LrSchedule::kCosine, 4);
  const int64_t total = 4 + 6;
  EXPECT_NEAR(learning_rate(optimizer, 3 + 2, total), 0.2 + 0.6 * 0.75, 1e-15);
  EXPECT_NEAR(learning_rate(optimizer, 3 + 3, total), 0.2 + 0.6 * 0.5, 1e-15);
  EXPECT_NEAR(learning_rate(optimizer, 3 + 4, total), 0.2 + 0.6 * 0.25, 1e-15);
  EXPECT_EQ(learning_rate(optimizer, total - 1, total), 0.2);
  EXPECT_EQ(learning_rate(optimizer, total + 5, total), 0.2);
}

TEST(LearningRate, FallsWithTheRootOfTheStepsDoneAndNotBelowTheMinimum) {
  const OptimizerConfig optimizer = config(LrSchedule::kInverseSqrt, 4);
  EXPECT_DOUBLE_EQ(learning_rate(optimizer, 8, 1000), 0.8 * 2 / 3);  // 4 of 9
  EXPECT_DOUBLE_EQ(learning_rate(optimizer, 15, 1000), 0.4);         // 4 of 16
  EXPECT_DOUBLE_EQ(learning_rate(optimizer, 63, 1000), 0.2);         // 4 of 64: 0.2
  EXPECT_EQ(learning_rate(optimizer, 500, 1000), 0.2);
  EXPECT_DOUBLE_EQ(learning_rate(config(LrSchedule::kInverseSqrt, 0), 3, 1000), 0.4);  // 1 of 4
}

// Of 20 steps, 4 to warm up and 8 to fall: the thirteenth is the first that falls.
TEST(LearningRate, StaysAndFallsAtTheEndInEveryShape) {
  const auto after = [](DecayShape shape, int64_t falling) {
    return (learning_rate(wsd(shape, 8), 11 + falling, 20) - 0.2) / 0.6;
  };
  for (const DecayShape shape : {DecayShape::kLinear, DecayShape::kCosine, DecayShape::kExponential,
                                 DecayShape::kMinusSqrt}) {
    EXPECT_EQ(learning_rate(wsd(shape, 8), 4, 20), 0.8);
    EXPECT_EQ(learning_rate(wsd(shape, 8), 11, 20), 0.8);
    EXPECT_LT(learning_rate(wsd(shape, 8), 12, 20), 0.8);
    EXPECT_NEAR(learning_rate(wsd(shape, 8), 19, 20), 0.2, 1e-15);
    EXPECT_NEAR(learning_rate(wsd(shape, 8), 30, 20), 0.2, 1e-15);
  }
  EXPECT_NEAR(after(DecayShape::kLinear, 2), 0.75, 1e-15);
  EXPECT_NEAR(after(DecayShape::kCosine, 4), 0.5, 1e-15);
  EXPECT_NEAR(after(DecayShape::kExponential, 4), 2 / std::sqrt(2.0) - 1, 1e-15);
  EXPECT_NEAR(after(DecayShape::kMinusSqrt, 2), 0.5, 1e-15);
}

TEST(LearningRate, FallsOverATenthWhereNothingElseIsSaid) {
  const OptimizerConfig optimizer = wsd(DecayShape::kLinear, 0);
  EXPECT_EQ(learning_rate(optimizer, 89, 100), 0.8);
  EXPECT_NEAR(learning_rate(optimizer, 94, 100), 0.5, 1e-15);
  EXPECT_EQ(learning_rate(optimizer, 99, 100), 0.2);
  // A run of minutes that turned out short: what the warm-up leaves.
  EXPECT_NEAR(learning_rate(wsd(DecayShape::kLinear, 50), 4, 6), 0.5, 1e-15);
}

TEST(LearningRate, DoesNotFallBeforeTheLengthOfTheRunIsKnown) {
  for (const LrSchedule schedule : {LrSchedule::kLinear, LrSchedule::kCosine, LrSchedule::kWsd}) {
    EXPECT_EQ(learning_rate(config(schedule, 4), 1000, kNoLimit), 0.8);
  }
}

TEST(LearningRate, StartsAtItsPeakWithoutAWarmUp) {
  const OptimizerConfig optimizer = config(LrSchedule::kCosine, 0);
  EXPECT_EQ(learning_rate(optimizer, 0, 3), 0.8);
  EXPECT_NEAR(learning_rate(optimizer, 1, 3), 0.5, 1e-15);
  EXPECT_EQ(learning_rate(optimizer, 2, 3), 0.2);
  EXPECT_EQ(learning_rate(optimizer, 0, 1), 0.8);  // a run of one step
}

TEST(LearningRate, OnlyWarmsUpWhenTheRunIsShorterThanTheWarmUp) {
  EXPECT_DOUBLE_EQ(learning_rate(config(LrSchedule::kCosine, 8), 3, 4), 0.4);
  EXPECT_DOUBLE_EQ(learning_rate(config(LrSchedule::kWsd, 8), 3, 4), 0.4);
}

TEST(WeightDecay, GoesFromTheFirstValueToTheLast) {
  OptimizerConfig optimizer;
  optimizer.weight_decay = 0.1;
  optimizer.final_weight_decay = 0.5;
  EXPECT_EQ(weight_decay(optimizer, 50, 100), 0.1);
  optimizer.weight_decay_schedule = WeightDecaySchedule::kLinear;
  EXPECT_NEAR(weight_decay(optimizer, 24, 100), 0.2, 1e-15);
  EXPECT_EQ(weight_decay(optimizer, 99, 100), 0.5);
  EXPECT_EQ(weight_decay(optimizer, 200, 100), 0.5);
  optimizer.weight_decay_schedule = WeightDecaySchedule::kCosine;
  EXPECT_NEAR(weight_decay(optimizer, 49, 100), 0.3, 1e-15);
  EXPECT_NEAR(weight_decay(optimizer, 24, 100), 0.1 + 0.4 * (1 - std::sqrt(0.5)) / 2, 1e-15);
  EXPECT_EQ(weight_decay(optimizer, 99, 100), 0.5);
}

#include "optim/schedule_golden.inc"

// Numbers of megatron-core's own scheduler, which counts the steps done.
TEST(LearningRate, EqualsMegatronsWhereverThereIsAWarmUp) {
  for (const GoldenSchedule& golden : kGoldenSchedules) {
    OptimizerConfig optimizer = config(golden.schedule, 5);
    optimizer.initial_lr = 0.05;
    optimizer.decay_steps = 9;
    optimizer.decay_shape = golden.shape;
    optimizer.weight_decay = 0.01;
    optimizer.final_weight_decay = 0.1;
    optimizer.weight_decay_schedule = golden.weight_decay_schedule;
    for (int64_t step = 0; step < 30; ++step) {
      EXPECT_NEAR(learning_rate(optimizer, step, 30), golden.rates[step], 1e-15);
      EXPECT_NEAR(weight_decay(optimizer, step, 30), golden.weight_decays[step], 1e-15);
    }
  }
}

}  // namespace
}  // namespace switchyard
