#include "nn/host_memory.h"

#include <ATen/ATen.h>

namespace switchyard {

at::Tensor HostMemory::take(const at::Tensor& tensor) {
  return tensor.to(at::kCPU);
}

at::Tensor HostMemory::give_back(const at::Tensor& kept, at::Device device) {
  return kept.to(device);
}

HostMemory& HostMemory::of_process() {
  static HostMemory memory;
  return memory;
}

}  // namespace switchyard
