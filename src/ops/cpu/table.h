#pragma once

// All kernels, for the instruction set of the file that includes this. Only for the kernels_*.cpp
// files.

#include "ops/cpu/gemm_kernel.h"
#include "ops/cpu/kernels.h"
#include "ops/cpu/sum_rows_kernel.h"
#include "ops/cpu/swiglu_kernel.h"

namespace switchyard {
namespace {

template <class T>
constexpr TypedKernels<T> typed_kernels() {
  return {gemm<T>, swiglu<T>, swiglu_backward<T>, sum_rows<T>};
}

constexpr CpuKernels kernels_named(const char* name) {
  return {name, typed_kernels<double>(), typed_kernels<float>(), typed_kernels<Bf16Bits>()};
}

}  // namespace
}  // namespace switchyard
