#pragma once

#include <ATen/core/Tensor.h>

namespace switchyard {

// silu(gate) x up x weight, row by row, where silu(x) = x / (1 + exp(-x)).
// gate_up [rows, 2 x ffn] fp64, fp32 or bf16 holds gate in its first half and up in its second;
// weights [rows] fp32 or fp64, or undefined for weight one -> [rows, ffn], dtype of gate_up.
// Computed in the wider of fp32 and gate_up, rounded once.
//
// Differentiable in both arguments; saves nothing but them. Throws ShapeError when sizes or dtypes
// do not fit. The same bits for every number of threads. SwiGLU: Shazeer 2020, arXiv:2002.05202.
at::Tensor weighted_swiglu(const at::Tensor& gate_up, const at::Tensor& weights);

}  // namespace switchyard
