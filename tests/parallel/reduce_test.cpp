#include "parallel/reduce.h"

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <ATen/ATen.h>

#include "base/error.h"

namespace switchyard {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

TEST(ReducePieces, AddsInOrder) {
  // 1e16 + 1 + 1 loses both ones, 1 + 1 + 1e16 keeps them.
  const at::Tensor large = at::full({1}, 1e16, at::kDouble);
  const at::Tensor one = at::ones({1}, at::kDouble);
  const at::Tensor out = at::empty({1}, at::kDouble);
  reduce_pieces({large, one, one}, out, ReduceOp::kSum);
  EXPECT_EQ(out.item<double>(), 1e16);
  reduce_pieces({one, one, large}, out, ReduceOp::kSum);
  EXPECT_EQ(out.item<double>(), 1e16 + 2);
}

TEST(ReducePieces, RoundsSumsOfHalfPrecisionOnce) {
  // In bf16 itself 256 + 1 rounds back to 256 each time.
  std::vector<at::Tensor> pieces{at::full({3000}, 256, at::kBFloat16)};
  for (int i = 0; i < 4; ++i) {
    pieces.push_back(at::ones({3000}, at::kBFloat16));
  }
  const at::Tensor out = at::empty({3000}, at::kBFloat16);
  reduce_pieces(pieces, out, ReduceOp::kSum);
  EXPECT_TRUE(at::equal(out, at::full({3000}, 260, at::kBFloat16)));
}

TEST(ReducePieces, EqualsAdditionByLibtorchForEveryDtypeAndLength) {
  for (const auto dtype :
       {at::kDouble, at::kFloat, at::kBFloat16, at::kHalf, at::kLong, at::kInt}) {
    for (const int64_t length : {0, 1, 7, 1023, 1024, 1025, 5000}) {
      std::vector<at::Tensor> pieces;
      for (int i = 0; i < 5; ++i) {
        pieces.push_back((at::randn({length}, at::kDouble) * 100).to(dtype));
      }
      const bool is_half = dtype == at::kBFloat16 || dtype == at::kHalf;
      at::Tensor sum = pieces[0].to(is_half ? at::kFloat : dtype);
      at::Tensor largest = pieces[0];
      for (size_t i = 1; i < pieces.size(); ++i) {
        sum = sum + pieces[i].to(sum.scalar_type());
        largest = at::maximum(largest, pieces[i]);
      }
      const at::Tensor out = at::empty({length}, dtype);
      reduce_pieces(pieces, out, ReduceOp::kSum);
      EXPECT_TRUE(at::equal(out, sum.to(dtype))) << dtype << " x " << length;
      reduce_pieces(pieces, out, ReduceOp::kMax);
      EXPECT_TRUE(at::equal(out, largest)) << dtype << " x " << length;
    }
  }
}

TEST(ReducePieces, MayWriteOverOneOfThePieces) {
  for (size_t own = 0; own < 3; ++own) {
    const std::vector<at::Tensor> pieces{at::full({2500}, 1.0), at::full({2500}, 20.0),
                                         at::full({2500}, 300.0)};
    reduce_pieces(pieces, pieces[own], ReduceOp::kSum);
    EXPECT_TRUE(at::equal(pieces[own], at::full({2500}, 321.0)));
  }
}

TEST(ReducePieces, LetsNanWinAMaximum) {
  const at::Tensor out = at::empty({3}, at::kDouble);
  reduce_pieces(
      {at::tensor({kNan, 1.0, 1.0}, at::kDouble), at::tensor({2.0, kNan, 2.0}, at::kDouble)}, out,
      ReduceOp::kMax);
  EXPECT_TRUE(std::isnan(out[0].item<double>()));
  EXPECT_TRUE(std::isnan(out[1].item<double>()));
  EXPECT_EQ(out[2].item<double>(), 2);
}

TEST(ReducePieces, RefusesOtherDtypes) {
  const at::Tensor flags = at::ones({2}, at::kBool);
  try {
    reduce_pieces({flags, flags}, flags, ReduceOp::kSum);
    FAIL() << "accepted";
  } catch (const ShapeError& error) {
    EXPECT_STREQ(error.what(), "values of dtype Bool cannot be reduced over ranks");
  }
}

}  // namespace
}  // namespace switchyard
