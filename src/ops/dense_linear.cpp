#include "ops/dense_linear.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>

#include "base/error.h"
#include "base/shape.h"
#include "ops/deferred_gradients.h"
#include "ops/float_types.h"
#include "ops/grouped_gemm.h"
#include "ops/kernel_types.h"

namespace switchyard {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// A matrix as it lies in memory: row after row, or column after column.
struct Stored {
  explicit Stored(const at::Tensor& matrix) : tensor(matrix) {
    const bool has_rows = matrix.stride(1) == 1 && matrix.stride(0) >= matrix.size(1);
    transposed = !has_rows && matrix.stride(0) == 1 && matrix.stride(1) >= matrix.size(0);
    if (!has_rows && !transposed) {
      tensor = matrix.contiguous();
    }
    stride = transposed ? tensor.stride(1) : tensor.stride(0);
  }

  at::Tensor tensor;
  int64_t stride;
  bool transposed;
};

void check_same_type(const at::Tensor& a, const at::Tensor& b) {
  check<ShapeError>(a.scalar_type() == b.scalar_type(),
                    "a matrix product needs one dtype, got {} and {}",
                    c10::toString(a.scalar_type()), c10::toString(b.scalar_type()));
}

struct DenseLinear : torch::autograd::Function<DenseLinear> {
  // input [rows, in]
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& input,
                            const at::Tensor& weight) {
    ctx->save_for_backward({input, weight});
    return matrix_product(input, weight.t());
  }
  static variable_list backward(AutogradContext* ctx, const variable_list& grads) {
    const variable_list saved = ctx->get_saved_variables();
    const at::Tensor grad = grads[0].contiguous();
    variable_list results(2);
    if (ctx->needs_input_grad(0)) {
      results[0] = matrix_product(grad, saved[1]);
    }
    if (ctx->needs_input_grad(1)) {
      results[1] = now_or_later({saved[1]}, [grad, input = saved[0]] {
        return variable_list{matrix_product(grad.t(), input)};
      })[0];
    }
    return results;
  }
};

}  // namespace

at::Tensor matrix_product(const at::Tensor& a, const at::Tensor& b) {
  check_float_cpu("matrix_product: a", a);
  check_float_cpu("matrix_product: b", b);
  check_same_type(a, b);
  check_shape("matrix_product: a", a, {kAnySize, kAnySize});
  check_shape("matrix_product: b", b, {a.size(1), kAnySize});
  const Stored left(a);
  const Stored right(b);
  at::Tensor result = at::empty({a.size(0), b.size(1)}, a.options());
  visit_kernels(a.scalar_type(), [&](const auto& kernels) {
    using T = Value<decltype(kernels)>;
    multiply_all(kernels, {MatrixProduct<T>{.a = values_of<T>(left.tensor),
                                            .a_stride = left.stride,
                                            .a_transposed = left.transposed,
                                            .b = values_of<T>(right.tensor),
                                            .b_stride = right.stride,
                                            .b_transposed = right.transposed,
                                            .c = mutable_values_of<T>(result),
                                            .c_stride = b.size(1),
                                            .m = a.size(0),
                                            .n = b.size(1),
                                            .k = a.size(1)}});
  });
  return result;
}

at::Tensor dense_linear(const at::Tensor& input, const at::Tensor& weight) {
  check_float_cpu("dense_linear: input", input);
  check_float_cpu("dense_linear: weight", weight);
  check_same_type(input, weight);
  check<ShapeError>(input.dim() >= 1, "dense_linear: input must have at least one dimension");
  check_shape("dense_linear: weight", weight, {kAnySize, input.size(-1)});
  std::vector<int64_t> sizes = input.sizes().vec();
  sizes.back() = weight.size(0);
  // Rows from the other sizes rather than -1, which no rows or no columns would leave open.
  int64_t rows = 1;
  for (size_t dim = 0; dim + 1 < sizes.size(); ++dim) {
    rows *= sizes[dim];
  }
  return DenseLinear::apply(input.reshape({rows, input.size(-1)}).contiguous(), weight.contiguous())
      .view(sizes);
}

}  // namespace switchyard
