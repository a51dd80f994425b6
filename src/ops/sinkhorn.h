#pragma once

#include <ATen/core/Tensor.h>

namespace switchyard {

// Scores balanced over tokens and experts: exp(logits) with rows and columns scaled, in turn, until
// every row sums to 1 / tokens and every column to 1 / num_experts:
//   row_scale = (1 / tokens) / (sum over experts of column_scale x cost + 1e-8)
//   column_scale = (1 / num_experts) / (sum over tokens of row_scale x cost + 1e-8)
// until column_scale changes by less than 1e-4 in the mean. Megatron-Core's form of Sinkhorn's
// algorithm; routing by it: Clark et al. 2022, arXiv:2202.01169. Computed in fp64.
// logits [tokens, num_experts] fp64, fp32 or bf16 -> the same shape, fp64. Not differentiable: it
// chooses. Throws ShapeError.
at::Tensor sinkhorn(const at::Tensor& logits);

}  // namespace switchyard
