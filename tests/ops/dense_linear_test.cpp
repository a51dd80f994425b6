#include "ops/dense_linear.h"

#include <gtest/gtest.h>

#include <ATen/ATen.h>

#include "ops/op_checks.h"

namespace switchyard {
namespace {

double tolerance(at::ScalarType type) {
  return type == at::kDouble ? 1e-14 : type == at::kFloat ? 2e-6 : 4e-3;
}

// By libtorch, in fp64.
at::Tensor reference(const at::Tensor& a, const at::Tensor& b) {
  return at::matmul(a.to(at::kDouble), b.to(at::kDouble));
}

TEST(MatrixProduct, EqualsLibtorchsForEveryLayoutOfTheOperands) {
  at::manual_seed(7);
  const PoisonNewTensors poison;
  for (const auto type : {at::kDouble, at::kFloat, at::kBFloat16}) {
    const at::Tensor a = at::randn({300, 75}).to(type);
    const at::Tensor b = at::randn({75, 140}).to(type);
    const at::Tensor expected = reference(a, b);
    // Rows, columns, parts of larger matrices, and every second column.
    for (const at::Tensor& left : {a, a.t().contiguous().t(), at::cat({a, a}, 1).slice(1, 75),
                                   at::stack({a, a}, 2).select(2, 1)}) {
      for (const at::Tensor& right : {b, b.t().contiguous().t(), at::cat({b, b}, 1).slice(1, 140),
                                      at::cat({b, b}, 0).t().contiguous().t().slice(0, 75)}) {
        EXPECT_LE(relative_error(matrix_product(left, right), expected), tolerance(type))
            << type << " strides " << left.strides() << right.strides();
      }
    }
  }
}

TEST(MatrixProduct, AcceptsSizesOfZeroAndOne) {
  const PoisonNewTensors poison;
  EXPECT_EQ(matrix_product(at::zeros({0, 3}), at::zeros({3, 2})).sizes(),
            (std::vector<int64_t>{0, 2}));
  EXPECT_EQ(matrix_product(at::zeros({2, 3}), at::zeros({3, 0})).sizes(),
            (std::vector<int64_t>{2, 0}));
  EXPECT_TRUE(at::equal(matrix_product(at::zeros({2, 0}), at::zeros({0, 3})), at::zeros({2, 3})));
  const at::Tensor column = at::randn({5, 1});
  EXPECT_TRUE(at::allclose(matrix_product(column, column.t()), column * column.t()));
  EXPECT_TRUE(at::allclose(matrix_product(column.t(), column), column.square().sum(0, true)));
}

TEST(DenseLinear, KeepsLeadingSizesAndHasTheGradientsOfDifferences) {
  at::manual_seed(8);
  const at::Tensor input = at::randn({2, 3, 5}, at::kDouble);
  const at::Tensor weight = at::randn({4, 5}, at::kDouble);
  EXPECT_LE(relative_error(dense_linear(input, weight), reference(input, weight.t())), 1e-14);
  expect_gradients_match_differences(
      [](const Tensors& x) { return Tensors{dense_linear(x[0], x[1])}; }, {input, weight});
  EXPECT_EQ(dense_linear(at::zeros({0, 5}), at::zeros({4, 5})).sizes(),
            (std::vector<int64_t>{0, 4}));
}

TEST(DenseLinear, DoesNotDependOnThreads) {
  for (const auto type : {at::kFloat, at::kBFloat16}) {
    const at::Tensor input = at::randn({700, 130}).to(type);
    const at::Tensor weight = at::randn({300, 130}).to(type);
    const at::Tensor probe = at::randn({700, 300}).to(type);
    expect_same_bytes_for_all_thread_counts([&] {
      Tensors results =
          gradients([](const Tensors& x) { return Tensors{dense_linear(x[0], x[1])}; },
                    {input, weight}, {probe});
      results.push_back(dense_linear(input, weight));
      return results;
    });
  }
}

TEST(DenseLinear, NamesWhatIsWrong) {
  EXPECT_EQ(message_of([] {
              dense_linear(at::zeros({2, 3}), at::zeros({4, 5}));
            }),
            "dense_linear: weight must have shape [*, 3], got [4, 5]");
  EXPECT_EQ(message_of([] {
              dense_linear(at::zeros({2, 3}), at::zeros({4, 3}, at::kDouble));
            }),
            "a matrix product needs one dtype, got Float and Double");
  EXPECT_EQ(message_of([] {
              matrix_product(at::zeros({2, 3}), at::zeros({4, 5}));
            }),
            "matrix_product: b must have shape [3, *], got [4, 5]");
}

}  // namespace
}  // namespace switchyard
