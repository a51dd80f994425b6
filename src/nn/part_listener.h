#pragma once

#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

namespace switchyard {

// Parts of a model whose parameters are used together: "embedding", "layers.3", and "head" with the
// final norm.

// The part that a parameter belongs to, by its logical name.
std::string part_of(const std::string& parameter);

// Who is told which part's parameters are in use, to bring them in and let them go. Each begin has
// an end; uses may be nested, as where a layer is computed again in its backward pass. All ranks of
// a pipeline stage tell the same in the same order.
class PartListener {
 public:
  virtual ~PartListener() = default;
  virtual void forward_begins(const std::string& part) = 0;
  virtual void forward_ends(const std::string& part) = 0;
  virtual void backward_begins(const std::string& part) = 0;
  virtual void backward_ends(const std::string& part) = 0;
  // A backward pass through these parts has ended: no gradient comes any more.
  virtual void pass_ends(const std::vector<std::string>& parts) = 0;
  // The optimizer or a load has written parameters: what was brought in is out of date.
  virtual void values_change() = 0;
};

// A use of a part in a forward pass, while this lives; and, where gradients are recorded, in the
// backward pass from the gradient of what ends_with() is given to that of `input`. Does nothing
// without a listener.
class PartUse {
 public:
  // `input` may be undefined: then the backward use ends with the pass, by pass_ends(). It must not
  // be a leaf of the graph that backward runs through: gradients of leaves come in any order.
  PartUse(PartListener* listener, std::string part, const at::Tensor& input);
  ~PartUse();
  PartUse(const PartUse&) = delete;
  PartUse& operator=(const PartUse&) = delete;

  void ends_with(const at::Tensor& output);

 private:
  PartListener* listener_;
  std::string part_;
};

}  // namespace switchyard
