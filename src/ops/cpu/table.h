#pragma once

// All kernels, for the instruction set of the file that includes this. Only for the kernels_*.cpp
// files.

#include "ops/cpu/activation_kernel.h"
#include "ops/cpu/bias_kernel.h"
#include "ops/cpu/gemm_kernel.h"
#include "ops/cpu/kernels.h"
#include "ops/cpu/sum_rows_kernel.h"

namespace switchyard {
namespace {

template <class T>
constexpr TypedKernels<T> typed_kernels() {
  return {gemm<T>,
          {kernels_of_activation<T, Silu>(), kernels_of_activation<T, Gelu>(),
           kernels_of_activation<T, GeluTanh>(), kernels_of_activation<T, Relu>(),
           kernels_of_activation<T, ReluSquared>(), kernels_of_activation<T, QuickGelu>()},
          sum_rows<T>,
          add_scaled<T>,
          add_scaled_to_sums<T>,
          round_to<T>,
          dot<T>};
}

constexpr CpuKernels kernels_named(const char* name) {
  return {name, typed_kernels<double>(), typed_kernels<float>(), typed_kernels<Bf16Bits>()};
}

}  // namespace
}  // namespace switchyard
