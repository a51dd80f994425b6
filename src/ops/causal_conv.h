#pragma once

#include <optional>

#include <ATen/core/Tensor.h>

#include "base/sequence_table.h"

namespace switchyard {

// A causal depthwise convolution along each sequence of the table, then SiLU:
//   y[t, c] = silu(bias[c] + sum over j < width of weight[c, j] x[t - width + 1 + j, c]).
// Before a sequence lies its history, or zeros without one. Tokens of padding give zeros, and get
// zero gradients.
//
// x [tokens, channels], all tokens of the table's row, fp64, fp32 or bf16; weight [channels, width]
// and bias [channels] of the same dtype; history [num_sequences, width - 1, channels], the inputs
// right before each sequence, oldest first -> [tokens, channels]. Computed in the wider of fp32 and
// x, rounded once. Differentiable in all; saves nothing but them. Throws ShapeError when sizes or
// dtypes do not fit. The same bits for every number of threads. As in Mamba: Gu and Dao 2023,
// arXiv:2312.00752.
at::Tensor causal_conv(const at::Tensor& x, const at::Tensor& weight,
                       const std::optional<at::Tensor>& bias, const SequenceTable& table,
                       const std::optional<at::Tensor>& history = std::nullopt);

// The history of the tokens that follow: the last width - 1 inputs of each sequence, with those of
// `history` or zeros before them. [num_sequences, width - 1, channels]. Differentiable.
at::Tensor conv_history(const at::Tensor& x, int64_t width, const SequenceTable& table,
                        const std::optional<at::Tensor>& history = std::nullopt);

}  // namespace switchyard
