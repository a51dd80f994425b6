#pragma once

#include <ATen/core/Tensor.h>

namespace switchyard {

// x / sqrt(sum of squares + 1e-6) x scale over the last dim of x [a, b, width], contiguous fp32 or
// fp64: the queries and keys of a gated delta net (modeling_qwen3_next.py, l2norm). No gradient.
at::Tensor unit_rows(const at::Tensor& x, double scale);

// Turns the gradient of unit_rows(x, scale), contiguous and of x's shape, into that of x, in place.
void unit_rows_backward(const at::Tensor& x, double scale, at::Tensor& grad);

}  // namespace switchyard
