#pragma once

#include <ATen/core/Tensor.h>

namespace switchyard {

// y = round(x / sqrt(mean(x^2) + epsilon)) * weight over the last dim, where round is to x's dtype:
// matches HF's LlamaRMSNorm. x [..., hidden] fp64, fp32 or bf16, weight [hidden] of the same dtype
// -> [..., hidden].
//
// Statistics are taken in the wider of fp32 and x. Differentiable in both arguments; saves x,
// weight and one number a row. Throws ShapeError when sizes or dtypes do not fit. The same bits for
// every number of threads. RMSNorm: Zhang and Sennrich 2019, arXiv:1910.07467.
at::Tensor rms_norm(const at::Tensor& x, const at::Tensor& weight, double epsilon);

struct AddRmsNormOutput {
  at::Tensor sum;     // [..., hidden]: x + residual, rounded to their dtype
  at::Tensor normed;  // [..., hidden]: rms_norm of sum
};

// A residual connection and the norm that follows it in one pass each way. x and residual
// [..., hidden] of one dtype. Equal to rms_norm(x + residual), bit for bit.
AddRmsNormOutput add_rms_norm(const at::Tensor& x, const at::Tensor& residual,
                              const at::Tensor& weight, double epsilon);

}  // namespace switchyard
