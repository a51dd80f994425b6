#pragma once

#include <string_view>
#include <type_traits>

#include <ATen/core/Tensor.h>

#include "base/error.h"

namespace switchyard {

// Operators accumulate in the wider of fp32 and their input.
template <class T>
using Accumulator = std::conditional_t<std::is_same_v<T, double>, double, float>;

inline at::ScalarType accumulator_type(at::ScalarType type) {
  return type == at::kDouble ? at::kDouble : at::kFloat;
}

// Throws ShapeError unless `tensor` is a fp64, fp32 or bf16 tensor in the memory of the CPU.
inline void check_float_cpu(std::string_view name, const at::Tensor& tensor) {
  check<ShapeError>(tensor.defined(), "{} is missing", name);
  check<ShapeError>(tensor.device().is_cpu(), "{} must be on the CPU, got {}", name,
                    tensor.device().str());
  const at::ScalarType type = tensor.scalar_type();
  check<ShapeError>(type == at::kDouble || type == at::kFloat || type == at::kBFloat16,
                    "{} must be fp64, fp32 or bf16, got {}", name, c10::toString(type));
}

// Calls `visit` with a value of the C++ type of a fp64, fp32 or bf16 tensor.
template <class Visit>
void visit_float_type(at::ScalarType type, Visit&& visit) {
  if (type == at::kDouble) {
    visit(double{});
  } else if (type == at::kFloat) {
    visit(float{});
  } else {
    visit(at::BFloat16{});
  }
}

// Calls `visit` with a value of the C++ type of an fp64 or fp32 tensor.
template <class Visit>
void visit_wide_type(at::ScalarType type, Visit&& visit) {
  if (type == at::kDouble) {
    visit(double{});
  } else {
    visit(float{});
  }
}

}  // namespace switchyard
