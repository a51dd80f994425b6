#pragma once

#include <cstdint>

#include "ops/cpu/kernels.h"
#include "ops/grouped_gemm.h"
#include "ops/kernel_types.h"
#include "ops/thread_scratch.h"

namespace switchyard {

// Memory of a task that multiplies small matrices: arrays, and what the kernels work in. It is the
// calling thread's scratch, with nothing in it; one at a time for each thread.
template <class T>
class TaskMemory {
 public:
  // `elements`: of all arrays together; `num_arrays`: how many calls of take() there will be.
  TaskMemory(int64_t elements, int64_t num_arrays)
      : next_(static_cast<char*>(thread_scratch(kGemmWorkspaceBytes + num_arrays * kAlignment +
                                                elements * static_cast<int64_t>(sizeof(T))))) {
    workspace_ = next_;
    next_ += kGemmWorkspaceBytes;
  }

  T* take(int64_t elements) {
    T* array = reinterpret_cast<T*>(next_);
    const int64_t bytes = elements * static_cast<int64_t>(sizeof(T));
    next_ += (bytes + kAlignment - 1) / kAlignment * kAlignment;
    return array;
  }

  // A product of any size, on this thread.
  void multiply(const MatrixProduct<T>& product) {
    visit([&](const auto& kernels) {
      for_each_block(product, {kGemmRows, kGemmColumns},
                     [&](const MatrixProduct<T>& block) { kernels.gemm(block, workspace_); });
    });
  }

 private:
  static constexpr int64_t kAlignment = 64;

  template <class Use>
  static void visit(Use use) {
    if constexpr (sizeof(T) == sizeof(double)) {
      use(cpu_kernels().fp64);
    } else {
      use(cpu_kernels().fp32);
    }
  }

  char* next_;
  void* workspace_;
};

}  // namespace switchyard
