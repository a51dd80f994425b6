#pragma once

#include <ATen/core/Tensor.h>

namespace switchyard {

// Whether the gate acts before the norm, and is normalised with the values, or after it.
enum class GateOrder { kGateThenNorm, kNormThenGate };

// RMSNorm over groups of features, and a gate:
//   kGateThenNorm: norm(x silu(gate)) weight    (Mamba-2: Dao and Gu 2024, arXiv:2405.21060)
//   kNormThenGate: norm(x) weight silu(gate)    (gated delta net: Yang et al. 2024,
//                                                arXiv:2412.06464)
// norm divides by sqrt(mean(x^2) + epsilon), the mean over group_size adjacent features.
//
// x and gate [..., width], fp64, fp32 or bf16, weight [width] of the same dtype, group_size a
// divisor of width -> [..., width]. Computed in the wider of fp32 and x, rounded once.
// Differentiable in x, gate and weight; saves them and one number a group. Throws ShapeError when
// sizes or dtypes do not fit. The same bits for every number of threads.
at::Tensor gated_norm(const at::Tensor& x, const at::Tensor& gate, const at::Tensor& weight,
                      double epsilon, int64_t group_size, GateOrder order);

}  // namespace switchyard
