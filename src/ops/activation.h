#pragma once

#include <string_view>

#include <ATen/core/Tensor.h>

#include "base/activation.h"

namespace switchyard {

// Throws ShapeError when a function without a gate has limits, which are those of a gate.
void check_limits(std::string_view op, const MlpFunction& function);

// What an MLP makes of its first product, row by row: activation(gate) x up x weight, or without a
// gate activation(up) x weight.
// input [rows, 2 x ffn] holds gate in its first half and up in its second; without a gate it is
// [rows, ffn]. fp64, fp32 or bf16; weights [rows] fp32 or fp64, or undefined for weight one ->
// [rows, ffn], dtype of input. Computed in the wider of fp32 and input, rounded once.
//
// Differentiable in both arguments; saves nothing but them. Throws ShapeError when sizes or dtypes
// do not fit. The same bits for every number of threads. Gated MLPs: Shazeer 2020,
// arXiv:2002.05202.
at::Tensor weighted_activation(const at::Tensor& input, const at::Tensor& weights,
                               const MlpFunction& function = {});

}  // namespace switchyard
