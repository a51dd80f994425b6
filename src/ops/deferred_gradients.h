#pragma once

#include <functional>
#include <vector>

#include <ATen/core/Tensor.h>

namespace switchyard {

// Gradients of weights that a backward pass put off, to be computed later: what a pipeline has to
// wait for, the gradient of its input, is there sooner. They keep the tensors they are made of.
class DeferredGradients {
 public:
  using Compute = std::function<std::vector<at::Tensor>()>;

  // Of some weights together; an undefined one wants none.
  void add(const std::vector<at::Tensor>& weights, Compute compute);
  // Computes all of them, in the order in which they were put off, and adds each to the grad() of
  // its weight. Afterwards there are none.
  void run();
  bool empty() const { return entries_.empty(); }

 private:
  struct Entry {
    std::vector<at::Tensor> leaves;
    Compute compute;
  };
  std::vector<Entry> entries_;
};

// While it lives, backward passes on this thread put off the gradients of weights that are leaves,
// in dense_linear and expert_mlp, into `gradients`.
class DeferGradients {
 public:
  explicit DeferGradients(DeferredGradients& gradients);
  ~DeferGradients();
  DeferGradients(const DeferGradients&) = delete;
  DeferGradients& operator=(const DeferGradients&) = delete;

 private:
  DeferredGradients* previous_;
};

// For the backward pass of an operator: what `compute` gives or, where that is put off, as many
// undefined tensors. `weights`: as the operator saved them; undefined where no gradient is needed.
std::vector<at::Tensor> now_or_later(const std::vector<at::Tensor>& weights,
                                     DeferredGradients::Compute compute);

}  // namespace switchyard
