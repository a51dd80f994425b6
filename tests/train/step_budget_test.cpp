#include "train/step_budget.h"

#include <gtest/gtest.h>

namespace switchyard {
namespace {

TEST(StepBudget, FixesTheStepsFromTheSpeedOfTheFirst) {
  StepBudget budget(3);  // 180 s: measures for 6 s
  // A slow first step, then 0.1 s each.
  EXPECT_EQ(budget.add_step(1.0), std::nullopt);
  std::optional<int64_t> total;
  int steps = 1;
  while (!total) {
    total = budget.add_step(0.1);
    ++steps;
  }
  EXPECT_NEAR(steps, 51, 1);
  // 6 s are gone; 174 s are left for 1,740 steps.
  EXPECT_NEAR(static_cast<double>(*total), 51 + 1740, 2);
}

TEST(StepBudget, MakesThreeStepsAtLeast) {
  StepBudget budget(0.001);
  EXPECT_EQ(budget.add_step(5), std::nullopt);
  EXPECT_EQ(budget.add_step(5), std::nullopt);
  EXPECT_EQ(budget.add_step(5), 3);
}

}  // namespace
}  // namespace switchyard
