#pragma once

#include <memory>

#include "nn/host_memory.h"
#include "nn/parameters.h"

namespace switchyard {

// While one lives, what autograd saves on this thread for the backward pass waits in host memory
// and comes back when backward asks for it. Parameters stay where they are, and so does what a
// recomputed segment makes again. Values and gradients have the same bits as without. Within a
// segment it does nothing: that one keeps its input only.
class OffloadedActivations {
 public:
  // Does nothing where `is_on` is false. `parameters` and `memory` must outlive the graph.
  OffloadedActivations(bool is_on, const Parameters& parameters,
                       HostMemory& memory = HostMemory::of_process());
  ~OffloadedActivations();
  OffloadedActivations(const OffloadedActivations&) = delete;
  OffloadedActivations& operator=(const OffloadedActivations&) = delete;

 private:
  class Policy;

  std::unique_ptr<Policy> policy_;
};

}  // namespace switchyard
