#include "selfcheck/selfcheck.h"

#include <gtest/gtest.h>

#include <ATen/ATen.h>

#include "support/small_model.h"

namespace switchyard {
namespace {

ShrunkConfig tensor_and_expert_parallel() {
  Config config = small_config();
  config.parallel.tensor_size = 2;
  config.parallel.expert_size = 2;
  return shrink(config);
}

TEST(Selfcheck, PassesAndSaysWhatItCompared) {
  const SelfcheckReport report = selfcheck(tensor_and_expert_parallel());
  EXPECT_TRUE(report.failures.empty()) << report.failures.front();
  ASSERT_GE(report.kinds.size(), 4U);
  for (const ComparedKind& kind : report.kinds) {
    EXPECT_GT(kind.num_tensors, 0) << kind.kind;
    EXPECT_LT(kind.largest, kSelfcheckTolerance) << kind.kind;
  }
  EXPECT_GT(report.sites.collectives.size(), 5U);
  ASSERT_EQ(report.kinds_in_fp32.size(), 3U);  // gradients, their norm, the loss
  for (const ComparedKind& kind : report.kinds_in_fp32) {
    EXPECT_GT(kind.largest, 0) << kind.kind;
    EXPECT_LT(kind.largest, kFp32Tolerance) << kind.kind;
  }
  EXPECT_GT(report.num_choices, 20);
}

TEST(Compare, MeasuresEachTensorByItsOwnNorm) {
  LogicalTensors expected;
  LogicalTensors actual;
  expected.add_whole("grad.a", at::full({4}, 2.0, at::kDouble));
  actual.add_whole("grad.a", at::full({4}, 2.5, at::kDouble));
  expected.add_whole("missing", at::ones({1}, at::kDouble));
  const auto compared = compare(expected, actual);
  ASSERT_EQ(compared.size(), 2U);
  EXPECT_DOUBLE_EQ(compared[0].relative, 0.25);
  EXPECT_GT(compared[1].relative, 1e300);
  EXPECT_EQ(differences(expected, actual, 0.3).size(), 1U);
  EXPECT_EQ(differences(expected, actual, 0.2).size(), 2U);
}

TEST(Compare, FindsReplicasThatDiffer) {
  LogicalTensors expected;
  LogicalTensors actual;
  expected.add_whole("weight.a", at::ones({2}, at::kDouble));
  actual.add_whole("weight.a", at::ones({2}, at::kDouble) * (1 + 1e-15));
  actual.add_whole("weight.a", at::ones({2}, at::kDouble));
  EXPECT_EQ(differences(expected, actual, 1e-9).size(), 1U);
}

}  // namespace
}  // namespace switchyard
