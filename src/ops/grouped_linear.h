#pragma once

#include <cstdint>
#include <vector>

#include <ATen/core/Tensor.h>

namespace switchyard {

// A linear layer per expert in one call: for the rows of expert e, rows_e x weight_e^T.
// rows [received, in] lie grouped by expert, rows_per_expert [num_experts] adds up to received;
// weight [num_experts, out, in] -> [received, out]. fp64, fp32 or bf16, the same for both.
//
// Differentiable in rows and weight. An expert without rows gets a zero weight gradient. bf16 sums
// are taken in fp32 and rounded once. Throws ShapeError when counts or sizes do not fit. The same
// bits for every number of threads.
at::Tensor grouped_linear(const at::Tensor& rows, const at::Tensor& weight,
                          const std::vector<int64_t>& rows_per_expert);

}  // namespace switchyard
