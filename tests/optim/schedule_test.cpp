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

TEST(LearningRate, RisesLinearlyFromTheFirstStep) {
  for (const LrSchedule schedule : {LrSchedule::kConstant, LrSchedule::kCosine}) {
    const OptimizerConfig optimizer = config(schedule, 4);
    EXPECT_DOUBLE_EQ(learning_rate(optimizer, 0, 100), 0.2);
    EXPECT_DOUBLE_EQ(learning_rate(optimizer, 1, 100), 0.4);
    EXPECT_DOUBLE_EQ(learning_rate(optimizer, 2, 100), 0.6);
    EXPECT_EQ(learning_rate(optimizer, 3, 100), 0.8);
  }
}

TEST(LearningRate, StaysAfterTheWarmUpWhenConstant) {
  const OptimizerConfig optimizer = config(LrSchedule::kConstant, 4);
  for (const int64_t step : {4, 50, 99, 100}) {
    EXPECT_EQ(learning_rate(optimizer, step, 100), 0.8);
  }
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

TEST(LearningRate, StartsAtItsPeakWithoutAWarmUp) {
  const OptimizerConfig optimizer = config(LrSchedule::kCosine, 0);
  EXPECT_EQ(learning_rate(optimizer, 0, 3), 0.8);
  EXPECT_NEAR(learning_rate(optimizer, 1, 3), 0.5, 1e-15);
  EXPECT_EQ(learning_rate(optimizer, 2, 3), 0.2);
  EXPECT_EQ(learning_rate(optimizer, 0, 1), 0.8);  // a run of one step
}

TEST(LearningRate, OnlyWarmsUpWhenTheRunIsShorterThanTheWarmUp) {
  EXPECT_DOUBLE_EQ(learning_rate(config(LrSchedule::kCosine, 8), 3, 4), 0.4);
}

}  // namespace
}  // namespace switchyard
