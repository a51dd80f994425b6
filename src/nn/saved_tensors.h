#pragma once

#include <memory>

#include <ATen/core/Tensor.h>

namespace torch::autograd {
struct SavedVariableHooks;
}

namespace switchyard {

// Tells what to do with each tensor that autograd saves on this thread, while a ScopedPolicy has
// it. For the sources of this folder, which include <torch/csrc/autograd/saved_variable_hooks.h>.
class SavedTensorPolicy {
 public:
  virtual ~SavedTensorPolicy() = default;
  // For one tensor.
  virtual std::unique_ptr<torch::autograd::SavedVariableHooks> make_hooks() = 0;
  // Whether all that is saved will be made again, by the second run of a segment.
  virtual bool is_of_segment() const { return false; }
  // Whether this tensor will.
  virtual bool makes_again(const at::Tensor&) const { return is_of_segment(); }
};

// The innermost one of this thread; null where there is none.
SavedTensorPolicy* active_policy();

// Makes a policy the innermost while it lives. Throws ShapeError when the engine has no hooks.
class ScopedPolicy {
 public:
  explicit ScopedPolicy(SavedTensorPolicy* policy);
  ~ScopedPolicy();
  ScopedPolicy(const ScopedPolicy&) = delete;
  ScopedPolicy& operator=(const ScopedPolicy&) = delete;

 private:
  SavedTensorPolicy* previous_;
};

}  // namespace switchyard
