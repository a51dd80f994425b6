#pragma once

#include <type_traits>

#include <ATen/core/Tensor.h>

#include "ops/cpu/kernels.h"

namespace switchyard {

// Calls `visit` with the kernels for a fp64, fp32 or bf16 tensor.
template <class Visit>
void visit_kernels(at::ScalarType type, Visit&& visit) {
  if (type == at::kDouble) {
    visit(cpu_kernels().fp64);
  } else if (type == at::kFloat) {
    visit(cpu_kernels().fp32);
  } else {
    visit(cpu_kernels().bf16);
  }
}

// The type of the values that a set of kernels works on.
template <class Kernels>
struct ValueOfKernels;
template <class T>
struct ValueOfKernels<TypedKernels<T>> {
  using Type = T;
};
template <class Kernels>
using Value = typename ValueOfKernels<std::decay_t<Kernels>>::Type;

// The values of a contiguous tensor, as the kernels see them.
template <class T>
const T* values_of(const at::Tensor& tensor) {
  return static_cast<const T*>(tensor.const_data_ptr());
}
template <class T>
T* mutable_values_of(at::Tensor& tensor) {
  return static_cast<T*>(tensor.mutable_data_ptr());
}

}  // namespace switchyard
