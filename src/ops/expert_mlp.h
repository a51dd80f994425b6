#pragma once

#include <cstdint>
#include <vector>

#include <ATen/core/Tensor.h>

#include "base/activation.h"

namespace switchyard {

// What an expert may have besides two products with a gated silu between them.
struct ExpertMlpOptions {
  MlpFunction function;
  at::Tensor up_bias;  // [num_experts, columns of up_weight]; undefined for none
  // [num_experts, width]; undefined for none. Added, times the row's weight, to `width` columns of
  // the result from first_biased_column on.
  at::Tensor down_bias;
  int64_t first_biased_column = 0;
};

// All MLPs of a rank's experts in one operator; for the rows of expert e
//   weighted_activation(rows_e x up_weight_e^T + up_bias_e, weights_e) x down_weight_e^T
//       + weights_e x down_bias_e
// and without biases bit for bit what grouped_linear, weighted_activation and grouped_linear give
// one after the other. It keeps only its inputs and the activation's input for backward:
// activations live in the cache, a block of rows at a time, and are computed again in backward. A
// bias is added to a product that was rounded to the dtype, and the sum is rounded again.
//
// rows [received, hidden] grouped by expert, up_weight [num_experts, 2 x ffn, hidden] with gate
// first, or [num_experts, ffn, hidden] without a gate, down_weight [num_experts, hidden, ffn] and
// biases all of one dtype, fp64, fp32 or bf16; weights [received] fp32 or fp64, or undefined for
// weight one -> [received, hidden]. Differentiable in all of them. Throws ShapeError when sizes or
// dtypes do not fit. The same bits for every number of threads.
at::Tensor expert_mlp(const at::Tensor& rows, const at::Tensor& up_weight,
                      const at::Tensor& down_weight, const at::Tensor& weights,
                      const std::vector<int64_t>& rows_per_expert,
                      const ExpertMlpOptions& options = {});

}  // namespace switchyard
