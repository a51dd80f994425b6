#include "ops/random_rows.h"

#include <gtest/gtest.h>

#include <ATen/ATen.h>

#include "ops/op_checks.h"

namespace switchyard {
namespace {

TEST(RandomRows, DoNotDependOnHowRowsAreCut) {
  const RandomStream stream(5, "rows");
  for (const auto type : {at::kDouble, at::kFloat}) {
    const at::Tensor whole = normal_rows(stream, 100, 20, 6, 2.0, type);
    const at::Tensor part = normal_rows(stream, 107, 5, 6, 2.0, type);
    EXPECT_TRUE(at::equal(part, whole.narrow(0, 7, 5)));
    EXPECT_EQ(whole[3][2].item<double>(),
              static_cast<double>(type == at::kDouble
                                      ? 2 * stream.normal(103 * 6 + 2)
                                      : static_cast<float>(2 * stream.normal(103 * 6 + 2))));
  }
}

TEST(RandomRows, HaveTheirRangeAndDeviation) {
  const RandomStream stream(6, "rows");
  const at::Tensor uniform = uniform_rows(stream, 0, 5000, 4, 0.9, 1.1, at::kDouble);
  EXPECT_GE(uniform.min().item<double>(), 0.9);
  EXPECT_LT(uniform.max().item<double>(), 1.1);
  EXPECT_NEAR(uniform.mean().item<double>(), 1.0, 2e-3);
  const at::Tensor normal = normal_rows(stream, 0, 5000, 4, 3.0, at::kDouble);
  EXPECT_NEAR(normal.std().item<double>(), 3.0, 0.06);
  EXPECT_NEAR(normal.mean().item<double>(), 0.0, 0.08);
}

TEST(RandomRows, DoNotDependOnThreads) {
  const RandomStream stream(7, "rows");
  expect_same_bytes_for_all_thread_counts([&] {
    return Tensors{normal_rows(stream, 3, 900, 17, 1.0, at::kFloat),
                   uniform_rows(stream, 3, 900, 17, 0, 1, at::kDouble)};
  });
}

}  // namespace
}  // namespace switchyard
