#pragma once

#include <ATen/core/Tensor.h>

namespace switchyard {

// Where tensors wait while the device of a rank does not need them. On a rank that computes on the
// CPU they are there already: nothing is copied, by the same code path.
class HostMemory {
 public:
  virtual ~HostMemory() = default;
  // The values in host memory: a copy, or the tensor itself where it is there.
  virtual at::Tensor take(const at::Tensor& tensor);
  // What take() gave, on the device again: a copy, or the tensor itself where it is there.
  virtual at::Tensor give_back(const at::Tensor& kept, at::Device device);

  // That of this process.
  static HostMemory& of_process();
};

}  // namespace switchyard
