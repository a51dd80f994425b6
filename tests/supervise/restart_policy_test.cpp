#include "supervise/restart_policy.h"

#include <gtest/gtest.h>

namespace switchyard {
namespace {

const Failure kOne{.rank = 1, .how = "ended with code 1", .checkpoint = "step_10"};
const Failure kOther{.rank = 2, .how = "ended with code 1", .checkpoint = "step_10"};
const Failure kLater{.rank = 1, .how = "ended with code 1", .checkpoint = "step_20"};

TEST(RestartPolicy, StartsAgainUntilNoRestartIsLeft) {
  RestartPolicy policy(2, 3);
  EXPECT_EQ(policy.after(kOne, false), NextAttempt::kSame);
  EXPECT_EQ(policy.after(kOther, false), NextAttempt::kSame);
  EXPECT_EQ(policy.after(kOne, false), NextAttempt::kNoneLeft);
  EXPECT_EQ(policy.num_restarts(), 2);
}

TEST(RestartPolicy, StopsAfterFailuresAlikeInARow) {
  RestartPolicy policy(100, 3);
  EXPECT_EQ(policy.after(kOne, false), NextAttempt::kSame);
  EXPECT_EQ(policy.after(kOne, false), NextAttempt::kSame);
  EXPECT_EQ(policy.after(kOther, false), NextAttempt::kSame);
  EXPECT_EQ(policy.after(kOne, false), NextAttempt::kSame);
  EXPECT_EQ(policy.after(kOne, false), NextAttempt::kSame);
  EXPECT_EQ(policy.after(kOne, false), NextAttempt::kNothingIsGained);
  EXPECT_EQ(policy.num_alike(), 3);
}

TEST(RestartPolicy, CountsAnewAfterANewCheckpoint) {
  RestartPolicy policy(100, 2);
  EXPECT_EQ(policy.after(kOne, false), NextAttempt::kSame);
  EXPECT_EQ(policy.after(kLater, false), NextAttempt::kSame);
  EXPECT_EQ(policy.after(kLater, false), NextAttempt::kNothingIsGained);
}

TEST(RestartPolicy, TakesFewerRanksInsteadOfStoppingAndCountsAnew) {
  RestartPolicy policy(100, 2);
  EXPECT_EQ(policy.after(kOne, true), NextAttempt::kSame);
  EXPECT_EQ(policy.after(kOne, true), NextAttempt::kFewerRanks);
  EXPECT_EQ(policy.after(kOne, true), NextAttempt::kSame);
  EXPECT_EQ(policy.after(kOne, false), NextAttempt::kNothingIsGained);
}

}  // namespace
}  // namespace switchyard
