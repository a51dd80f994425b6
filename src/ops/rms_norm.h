#pragma once

#include <ATen/core/Tensor.h>

namespace switchyard {

// How the weight of a norm is kept.
enum class NormWeight {
  kPlain,    // y = round(x / rms) * weight, where round is to x's dtype: HF's LlamaRMSNorm
  kPlusOne,  // y = x / rms * (1 + weight), rounded once: HF's GemmaRMSNorm
};

// x / rms times its weight over the last dim, with rms = sqrt(mean(x^2) + epsilon). x [..., hidden]
// fp64, fp32 or bf16, weight [hidden] of the same dtype -> [..., hidden].
//
// Statistics are taken in the wider of fp32 and x. Differentiable in both arguments; saves x,
// weight and one number a row. Throws ShapeError when sizes or dtypes do not fit. The same bits for
// every number of threads. RMSNorm: Zhang and Sennrich 2019, arXiv:1910.07467.
at::Tensor rms_norm(const at::Tensor& x, const at::Tensor& weight, double epsilon,
                    NormWeight kind = NormWeight::kPlain);

struct AddRmsNormOutput {
  at::Tensor sum;     // [..., hidden]: x + residual, rounded to their dtype
  at::Tensor normed;  // [..., hidden]: rms_norm of sum
};

// A residual connection and the norm that follows it in one pass each way. x and residual
// [..., hidden] of one dtype. Equal to rms_norm(x + residual), bit for bit.
AddRmsNormOutput add_rms_norm(const at::Tensor& x, const at::Tensor& residual,
                              const at::Tensor& weight, double epsilon);

}  // namespace switchyard
