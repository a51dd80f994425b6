#include "ops/grouped_linear.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>

#include "base/error.h"
#include "base/shape.h"
#include "ops/expert_rows.h"
#include "ops/float_types.h"
#include "ops/grouped_gemm.h"
#include "ops/kernel_types.h"

namespace switchyard {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// One product per expert with rows. `product_of(expert, first row, number of rows)` makes it.
template <class T, class ProductOf>
void multiply_per_expert(const TypedKernels<T>& kernels,
                         const std::vector<int64_t>& rows_per_expert, ProductOf product_of) {
  std::vector<MatrixProduct<T>> products;
  products.reserve(rows_per_expert.size());
  for_each_expert(rows_per_expert, [&](int64_t expert, int64_t first, int64_t rows) {
    products.push_back(product_of(expert, first, rows));
  });
  multiply_all(kernels, std::move(products));
}

// rows [received, in] x weight^T [in, out] per expert -> [received, out]
at::Tensor outputs_of(const at::Tensor& rows, const at::Tensor& weight,
                      const std::vector<int64_t>& rows_per_expert) {
  const int64_t out = weight.size(1);
  const int64_t in = weight.size(2);
  at::Tensor result = at::empty({rows.size(0), out}, rows.options());
  visit_kernels(rows.scalar_type(), [&](const auto& kernels) {
    using T = Value<decltype(kernels)>;
    const T* a = values_of<T>(rows);
    const T* b = values_of<T>(weight);
    T* c = mutable_values_of<T>(result);
    multiply_per_expert(kernels, rows_per_expert, [=](int64_t expert, int64_t first, int64_t m) {
      return MatrixProduct<T>{.a = a + first * in,
                              .a_stride = in,
                              .b = b + expert * out * in,
                              .b_stride = in,
                              .b_transposed = true,
                              .c = c + first * out,
                              .c_stride = out,
                              .m = m,
                              .n = out,
                              .k = in};
    });
  });
  return result;
}

// grad [received, out] x weight [out, in] per expert -> [received, in]
at::Tensor row_gradients_of(const at::Tensor& grad, const at::Tensor& weight,
                            const std::vector<int64_t>& rows_per_expert) {
  const int64_t out = weight.size(1);
  const int64_t in = weight.size(2);
  at::Tensor result = at::empty({grad.size(0), in}, grad.options());
  visit_kernels(grad.scalar_type(), [&](const auto& kernels) {
    using T = Value<decltype(kernels)>;
    const T* a = values_of<T>(grad);
    const T* b = values_of<T>(weight);
    T* c = mutable_values_of<T>(result);
    multiply_per_expert(kernels, rows_per_expert, [=](int64_t expert, int64_t first, int64_t m) {
      return MatrixProduct<T>{.a = a + first * out,
                              .a_stride = out,
                              .b = b + expert * out * in,
                              .b_stride = in,
                              .c = c + first * in,
                              .c_stride = in,
                              .m = m,
                              .n = in,
                              .k = out};
    });
  });
  return result;
}

// grad^T [out, received] x rows [received, in] per expert -> [num_experts, out, in]
at::Tensor weight_gradients_of(const at::Tensor& grad, const at::Tensor& rows,
                               const std::vector<int64_t>& rows_per_expert) {
  const int64_t out = grad.size(1);
  const int64_t in = rows.size(1);
  const auto num_experts = static_cast<int64_t>(rows_per_expert.size());
  at::Tensor result = at::empty({num_experts, out, in}, grad.options());
  visit_kernels(grad.scalar_type(), [&](const auto& kernels) {
    using T = Value<decltype(kernels)>;
    const T* a = values_of<T>(grad);
    const T* b = values_of<T>(rows);
    T* c = mutable_values_of<T>(result);
    multiply_per_expert(kernels, rows_per_expert, [=](int64_t expert, int64_t first, int64_t k) {
      return MatrixProduct<T>{.a = a + first * out,
                              .a_stride = out,
                              .a_transposed = true,
                              .b = b + first * in,
                              .b_stride = in,
                              .c = c + expert * out * in,
                              .c_stride = in,
                              .m = out,
                              .n = in,
                              .k = k};
    });
  });
  return result;
}

struct GroupedLinear : torch::autograd::Function<GroupedLinear> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& rows, const at::Tensor& weight,
                            const std::vector<int64_t>& rows_per_expert) {
    ctx->save_for_backward({rows, weight});
    ctx->saved_data["rows_per_expert"] = rows_per_expert;
    return outputs_of(rows, weight, rows_per_expert);
  }

  static variable_list backward(AutogradContext* ctx, const variable_list& grads) {
    const variable_list saved = ctx->get_saved_variables();
    const at::Tensor grad = grads[0].contiguous();
    const std::vector<int64_t> rows_per_expert = ctx->saved_data["rows_per_expert"].toIntVector();
    at::Tensor grad_rows;
    at::Tensor grad_weight;
    if (ctx->needs_input_grad(0)) {
      grad_rows = row_gradients_of(grad, saved[1], rows_per_expert);
    }
    if (ctx->needs_input_grad(1)) {
      grad_weight = weight_gradients_of(grad, saved[0], rows_per_expert);
    }
    return {grad_rows, grad_weight, at::Tensor()};
  }
};

}  // namespace

at::Tensor grouped_linear(const at::Tensor& rows, const at::Tensor& weight,
                          const std::vector<int64_t>& rows_per_expert) {
  check_float_cpu("grouped_linear: rows", rows);
  check_float_cpu("grouped_linear: weight", weight);
  check<ShapeError>(rows.scalar_type() == weight.scalar_type(),
                    "grouped_linear: rows ({}) and weight ({}) must have the same dtype",
                    c10::toString(rows.scalar_type()), c10::toString(weight.scalar_type()));
  check_shape("grouped_linear: rows", rows, {kAnySize, kAnySize});
  const auto num_experts = static_cast<int64_t>(rows_per_expert.size());
  check_shape("grouped_linear: weight", weight, {num_experts, kAnySize, rows.size(1)});
  check_rows_per_expert("grouped_linear", rows_per_expert, rows.size(0));
  return GroupedLinear::apply(rows.contiguous(), weight.contiguous(), rows_per_expert);
}

}  // namespace switchyard
