#pragma once

#include <functional>
#include <vector>

#include <ATen/core/Tensor.h>

namespace switchyard {

// A part of a forward pass as a function of its differentiable inputs. It must be repeatable:
// called twice with the same inputs it makes the same tensors in the same order (routing through a
// RoutingMemo, statistics only in the first call).
using Segment = std::function<std::vector<at::Tensor>(const std::vector<at::Tensor>&)>;

// Runs `segment` and keeps only its inputs for the backward pass: what autograd would have saved
// inside is dropped and computed again when backward first asks for it (activation checkpointing,
// Chen et al. 2016, arXiv:1604.06174), through hooks on saved tensors. Values and gradients are the
// same bits as without. Collective wherever the segment is, a second time during backward.
std::vector<at::Tensor> recompute(const Segment& segment, const std::vector<at::Tensor>& inputs);

}  // namespace switchyard
