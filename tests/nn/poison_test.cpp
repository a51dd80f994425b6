// The tests themselves: new memory must be poisoned, or a row that is never written would pass.
#include <gtest/gtest.h>

#include <ATen/ATen.h>

namespace switchyard {
namespace {

TEST(Poison, FillsNewTensorsWithNaN) {
  EXPECT_TRUE(at::isnan(at::empty({100}, at::kFloat)).all().item<bool>());
  EXPECT_TRUE(at::isnan(at::empty_like(at::zeros({10}, at::kDouble))).all().item<bool>());
  EXPECT_TRUE(at::isnan(at::empty({7}, at::kBFloat16)).all().item<bool>());
}

}  // namespace
}  // namespace switchyard
