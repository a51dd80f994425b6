#pragma once

#include <ATen/core/Tensor.h>

namespace switchyard {

// input x weight^T, on our own kernels: libtorch's fp32 products reach less than half of what an
// AMD processor with AVX-512 does. input [..., in], weight [out, in] -> [..., out]; fp64, fp32 or
// bf16, the same for both. Differentiable in both. bf16 sums are taken in fp32 and rounded once.
// Throws ShapeError when sizes or dtypes do not fit. The same bits for every number of threads.
at::Tensor dense_linear(const at::Tensor& input, const at::Tensor& weight);

// a x b, not differentiable. a [m, k], b [k, n] -> [m, n]. Transposed views are read as they are.
// Otherwise like `dense_linear`.
at::Tensor matrix_product(const at::Tensor& a, const at::Tensor& b);

}  // namespace switchyard
