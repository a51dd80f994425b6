#pragma once

#include <cstdint>
#include <vector>

#include <ATen/core/Tensor.h>

namespace switchyard {

// All gated MLPs of a rank's experts in one operator; for the rows of expert e
//   swiglu(rows_e x gate_up_weight_e^T) x weights_e, x down_weight_e^T
// and bit for bit what grouped_linear, weighted_swiglu and grouped_linear give one after the other.
// It keeps only its inputs and gate_up [received, 2 x ffn] for backward: activations live in the
// cache, a block of rows at a time, and are computed again in backward.
//
// rows [received, hidden] grouped by expert, gate_up_weight [num_experts, 2 x ffn, hidden] with
// gate first, down_weight [num_experts, hidden, ffn], all of one dtype, fp64, fp32 or bf16; weights
// [received] fp32 or fp64, or undefined for weight one -> [received, hidden]. Differentiable in all
// four. Throws ShapeError when sizes or dtypes do not fit. The same bits for every number of
// threads.
at::Tensor expert_mlp(const at::Tensor& rows, const at::Tensor& gate_up_weight,
                      const at::Tensor& down_weight, const at::Tensor& weights,
                      const std::vector<int64_t>& rows_per_expert);

}  // namespace switchyard
