#include "base/shape.h"

#include <gtest/gtest.h>

#include <ATen/ATen.h>

#include "base/error.h"

namespace switchyard {
namespace {

TEST(CheckShape, AcceptsAnySizeWhereAsked) {
  check_shape("x", at::zeros({4, 3}), {kAnySize, 3});
}

TEST(CheckShape, NamesTheTensorAndBothShapes) {
  try {
    check_shape("router input", at::zeros({5, 31}), {kAnySize, 32});
    FAIL();
  } catch (const ShapeError& error) {
    EXPECT_STREQ(error.what(), "router input must have shape [*, 32], got [5, 31]");
  }
  EXPECT_THROW(check_shape("x", at::zeros({2}), {2, 1}), ShapeError);
}

}  // namespace
}  // namespace switchyard
