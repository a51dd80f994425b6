#include "ops/deferred_gradients.h"

#include <algorithm>
#include <utility>

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/functions/accumulate_grad.h>
#include <torch/csrc/autograd/variable.h>

namespace switchyard {
namespace {

thread_local DeferredGradients* active = nullptr;

// The tensor whose grad() gets the gradient of `weight`: itself, or what it is a copy of, as saved
// tensors are under recompute. Undefined where it is no leaf.
at::Tensor leaf_of(const at::Tensor& weight) {
  if (!weight.is_leaf() || !weight.requires_grad()) {
    return {};
  }
  const auto node = torch::autograd::impl::grad_accumulator(weight);
  const auto* accumulate = dynamic_cast<const torch::autograd::AccumulateGrad*>(node.get());
  return accumulate == nullptr ? at::Tensor() : accumulate->variable;
}

void add_to_grad(at::Tensor& leaf, const at::Tensor& gradient) {
  at::Tensor& grad = leaf.mutable_grad();
  if (grad.defined()) {
    grad.add_(gradient);
  } else {
    grad = gradient;
  }
}

}  // namespace

void DeferredGradients::add(const std::vector<at::Tensor>& weights, Compute compute) {
  Entry entry{{}, std::move(compute)};
  for (const at::Tensor& weight : weights) {
    entry.leaves.push_back(weight.defined() ? leaf_of(weight) : at::Tensor());
  }
  entries_.push_back(std::move(entry));
}

void DeferredGradients::run() {
  const at::NoGradGuard no_grad;
  for (Entry& entry : entries_) {
    const std::vector<at::Tensor> gradients = std::exchange(entry.compute, nullptr)();
    for (size_t i = 0; i < gradients.size(); ++i) {
      if (entry.leaves[i].defined()) {
        add_to_grad(entry.leaves[i], gradients[i]);
      }
    }
  }
  entries_.clear();
}

DeferGradients::DeferGradients(DeferredGradients& gradients)
    : previous_(std::exchange(active, &gradients)) {}

DeferGradients::~DeferGradients() {
  active = previous_;
}

std::vector<at::Tensor> now_or_later(const std::vector<at::Tensor>& weights,
                                     DeferredGradients::Compute compute) {
  const bool can_wait = active != nullptr &&
                        std::all_of(weights.begin(), weights.end(), [](const at::Tensor& weight) {
                          return !weight.defined() || leaf_of(weight).defined();
                        });
  if (!can_wait) {
    return compute();
  }
  active->add(weights, std::move(compute));
  return std::vector<at::Tensor>(weights.size());
}

}  // namespace switchyard
