#include "ops/cpu/attention_kernels.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <memory>
#include <type_traits>
#include <utility>

#include <immintrin.h>

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include "ops/lanes.h"

// The same source for three instruction sets, each in a namespace of its own.
#pragma GCC push_options
#pragma GCC target("avx512f,avx512bw,avx512dq,avx512vl,fma")
#define KERNEL_VECTOR_BYTES 64
namespace switchyard::avx512 {
namespace {
#include "ops/cpu/vector.inc"
//
#include "ops/cpu/attention_kernels.inc"
}  // namespace
}  // namespace switchyard::avx512
#undef KERNEL_VECTOR_BYTES
#pragma GCC pop_options

#pragma GCC push_options
#pragma GCC target("avx2,fma")
#define KERNEL_VECTOR_BYTES 32
namespace switchyard::avx2 {
namespace {
#include "ops/cpu/vector.inc"
//
#include "ops/cpu/attention_kernels.inc"
}  // namespace
}  // namespace switchyard::avx2
#undef KERNEL_VECTOR_BYTES
#pragma GCC pop_options

#define KERNEL_VECTOR_BYTES 16
namespace switchyard::any_x86 {
namespace {
#include "ops/cpu/vector.inc"
//
#include "ops/cpu/attention_kernels.inc"
}  // namespace
}  // namespace switchyard::any_x86
#undef KERNEL_VECTOR_BYTES

namespace switchyard {
namespace {

enum class VectorSet { kAvx512, kAvx2, kAny };

VectorSet vector_set() {
  static const VectorSet best = [] {
    __builtin_cpu_init();
    if (__builtin_cpu_supports("avx512f") != 0 && __builtin_cpu_supports("avx512bw") != 0 &&
        __builtin_cpu_supports("avx512dq") != 0 && __builtin_cpu_supports("avx512vl") != 0) {
      return VectorSet::kAvx512;
    }
    if (__builtin_cpu_supports("avx2") != 0 && __builtin_cpu_supports("fma") != 0) {
      return VectorSet::kAvx2;
    }
    return VectorSet::kAny;
  }();
  return best;
}

}  // namespace

template <class T>
void attention_forward(const AttentionForwardArrays<T>& arrays, const AttentionShape& shape,
                       const std::vector<AttentionSpan>& spans) {
  switch (vector_set()) {
    case VectorSet::kAvx512:
      return avx512::forward(arrays, shape, spans);
    case VectorSet::kAvx2:
      return avx2::forward(arrays, shape, spans);
    case VectorSet::kAny:
      return any_x86::forward(arrays, shape, spans);
  }
}

template <class T>
void attention_backward(const AttentionBackwardArrays<T>& arrays, const AttentionShape& shape,
                        const std::vector<AttentionSpan>& spans) {
  switch (vector_set()) {
    case VectorSet::kAvx512:
      return avx512::backward(arrays, shape, spans);
    case VectorSet::kAvx2:
      return avx2::backward(arrays, shape, spans);
    case VectorSet::kAny:
      return any_x86::backward(arrays, shape, spans);
  }
}

template <class T>
void attention_decode(const AttentionDecodeArrays<T>& arrays, const AttentionShape& shape,
                      const AttentionSpan& span) {
  switch (vector_set()) {
    case VectorSet::kAvx512:
      return avx512::decode(arrays, shape, span);
    case VectorSet::kAvx2:
      return avx2::decode(arrays, shape, span);
    case VectorSet::kAny:
      return any_x86::decode(arrays, shape, span);
  }
}

template void attention_decode(const AttentionDecodeArrays<double>&, const AttentionShape&,
                               const AttentionSpan&);
template void attention_decode(const AttentionDecodeArrays<float>&, const AttentionShape&,
                               const AttentionSpan&);
template void attention_decode(const AttentionDecodeArrays<at::BFloat16>&, const AttentionShape&,
                               const AttentionSpan&);
template void attention_forward(const AttentionForwardArrays<double>&, const AttentionShape&,
                                const std::vector<AttentionSpan>&);
template void attention_forward(const AttentionForwardArrays<float>&, const AttentionShape&,
                                const std::vector<AttentionSpan>&);
template void attention_forward(const AttentionForwardArrays<at::BFloat16>&, const AttentionShape&,
                                const std::vector<AttentionSpan>&);
template void attention_backward(const AttentionBackwardArrays<double>&, const AttentionShape&,
                                 const std::vector<AttentionSpan>&);
template void attention_backward(const AttentionBackwardArrays<float>&, const AttentionShape&,
                                 const std::vector<AttentionSpan>&);
template void attention_backward(const AttentionBackwardArrays<at::BFloat16>&,
                                 const AttentionShape&, const std::vector<AttentionSpan>&);

}  // namespace switchyard
