#pragma once

#include <functional>
#include <memory>
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
// same bits as without. Collective wherever the segment is, a second time during backward. Within
// another segment it just runs: that one is computed again as a whole.
std::vector<at::Tensor> recompute(const Segment& segment, const std::vector<at::Tensor>& inputs);

// While one lives, what the segments of recompute_with_output() make on this thread is known to the
// operators that save it: they keep a note instead, and it is computed again when their backward
// asks. It keeps the outputs in memory itself; let it end with the last operator that uses them.
class DroppedOutputs {
 public:
  DroppedOutputs();
  ~DroppedOutputs();
  DroppedOutputs(const DroppedOutputs&) = delete;
  DroppedOutputs& operator=(const DroppedOutputs&) = delete;

  class Policy;

 private:
  std::unique_ptr<Policy> policy_;
};

// As recompute(), of one output, which is dropped as well inside a DroppedOutputs.
at::Tensor recompute_with_output(const std::function<at::Tensor(const std::vector<at::Tensor>&)>&,
                                 const std::vector<at::Tensor>& inputs);

}  // namespace switchyard
