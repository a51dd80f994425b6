#include "checkpoint/convert.h"

#include <cmath>

#include <gtest/gtest.h>

#include <ATen/ATen.h>

#include "base/error.h"
#include "checkpoint/checkpoint_tests.h"

namespace switchyard {
namespace {

constexpr at::ScalarType kFloats[] = {at::kDouble, at::kFloat, at::kHalf, at::kBFloat16};

// Against libtorch's own conversion, special values among them.
TEST(ConvertValues, RoundsAsLibtorchDoes) {
  at::manual_seed(1);
  const at::Tensor values = at::cat(
      {at::randn({1000}, at::kDouble) * 100,
       at::tensor({0.0, -0.0, 1e-30, 65504.0, 1e30, INFINITY, -INFINITY, 1.00390625, 1.01171875},
                  at::kDouble)});
  for (const at::ScalarType from : kFloats) {
    const at::Tensor source = values.to(from);
    for (const at::ScalarType to : kFloats) {
      at::Tensor target = at::empty(source.sizes(), to);
      convert_values(from, source.const_data_ptr(), to, target.mutable_data_ptr(), source.numel());
      EXPECT_TRUE(at::equal(target, source.to(to))) << from << " to " << to;
    }
  }
}

TEST(ConvertValues, KnowsWhereNoBitIsLost) {
  EXPECT_TRUE(holds_every_value_of(at::kFloat, at::kBFloat16));
  EXPECT_TRUE(holds_every_value_of(at::kFloat, at::kHalf));
  EXPECT_TRUE(holds_every_value_of(at::kDouble, at::kFloat));
  EXPECT_TRUE(holds_every_value_of(at::kLong, at::kLong));
  EXPECT_FALSE(holds_every_value_of(at::kHalf, at::kBFloat16));
  EXPECT_FALSE(holds_every_value_of(at::kBFloat16, at::kFloat));
  EXPECT_FALSE(holds_every_value_of(at::kDouble, at::kLong));
}

TEST(ConvertValues, RefusesIntegers) {
  const int64_t from = 1;
  float to = 0;
  EXPECT_EQ(message_of<ShapeError>([&] { convert_values(at::kLong, &from, at::kFloat, &to, 1); }),
            "Long cannot be converted to Float");
}

TEST(IsFinite, SeesOneValueThatIsNot) {
  for (const at::ScalarType dtype : {at::kDouble, at::kFloat, at::kHalf, at::kBFloat16}) {
    const at::Tensor values = at::full({7}, -65504, dtype);
    EXPECT_TRUE(is_finite(values)) << dtype;
    EXPECT_TRUE(is_finite(at::zeros({0}, dtype)));
    for (const double bad : {std::nan(""), HUGE_VAL, -HUGE_VAL}) {
      at::Tensor broken = values.clone();
      broken[5] = bad;
      EXPECT_FALSE(is_finite(broken)) << dtype << " " << bad;
    }
  }
  EXPECT_TRUE(is_finite(at::full({3}, 0x7fc00000, at::kInt)));
  for (const int64_t bad : {0x7f, 0xff}) {
    at::Tensor bytes = at::arange(0x70, 0x7f, at::kByte);
    EXPECT_TRUE(is_finite(bytes.view(at::kFloat8_e4m3fn)));
    bytes[3] = bad;
    EXPECT_FALSE(is_finite(bytes.view(at::kFloat8_e4m3fn))) << bad;
  }
}

}  // namespace
}  // namespace switchyard
