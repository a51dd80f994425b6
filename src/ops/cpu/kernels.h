#pragma once

#include <cstdint>

#include "base/activation.h"

namespace switchyard {

// The inner loops of the operators, written once and compiled once per instruction set: this
// header, vector.h and *_kernel.h include nothing of libtorch or of the standard library beyond
// types, so that no shared inline function is ever compiled for an instruction set the machine may
// lack.

// bf16 as it lies in memory.
struct Bf16Bits {
  uint16_t bits;
};

// The type that sums of T are taken in.
template <class T>
struct SumType {
  using Type = T;
};
template <>
struct SumType<Bf16Bits> {
  using Type = float;
};
template <class T>
using Sum = typename SumType<T>::Type;

// c [m, n] = a [m, k] x b [k, n], all row-major parts of larger matrices.
template <class T>
struct MatrixProduct {
  const T* a;
  int64_t a_stride;           // elements from row to row as stored
  bool a_transposed = false;  // stored as [k, m]
  const T* b;
  int64_t b_stride;
  bool b_transposed = false;  // stored as [n, k]
  T* c;
  int64_t c_stride;
  int64_t m;
  int64_t n;
  int64_t k;  // 0 writes zeros
  // Unless null, written in place of c, with its stride: the sums, not rounded to T.
  Sum<T>* wide_c = nullptr;
  bool accumulate = false;  // adds to what is in wide_c
};

// The largest m and n of one call, and the part of k that is summed at once.
constexpr int64_t kGemmRows = 384;
constexpr int64_t kGemmColumns = 512;
constexpr int64_t kGemmDepth = 512;
// A packed panel of b, packed a, and sums, in the widest type.
constexpr int64_t kGemmWorkspaceBytes =
    8 * (kGemmDepth * 32 + kGemmRows * kGemmDepth + kGemmRows * kGemmColumns);

// One row of weighted_activation, by the function that the kernels were chosen for.
template <class T>
struct ActivationKernels {
  // input [2 x ffn] or, without a gate, [ffn] -> out [ffn]
  void (*forward)(const T* input, double weight, int64_t ffn, T* out, const MlpFunction& function);
  // Gradients of one row; returns that of the weight. Writes what `forward` does to `out` on the
  // way, unless it is null.
  double (*backward)(const T* input, double weight, const T* grad_out, int64_t ffn, T* grad_input,
                     T* out, const MlpFunction& function);
};
template <class T>
struct KernelsOfActivation {
  ActivationKernels<T> without_gate;
  ActivationKernels<T> with_gate;
  ActivationKernels<T> with_limits;
};

template <class T>
struct TypedKernels {
  // A product, or a part of one, of at most kGemmRows x kGemmColumns. Sums are taken in the wider
  // of fp32 and T, over k in ascending parts of kGemmDepth: the bits of an element depend only on
  // its row of a, its column of b and k, not on how a product was cut. `workspace` holds
  // kGemmWorkspaceBytes, aligned to 64 bytes.
  void (*gemm)(const MatrixProduct<T>& product, void* workspace);

  KernelsOfActivation<T> activations[kNumActivations];
  const ActivationKernels<T>& activation(const MlpFunction& function) const {
    const KernelsOfActivation<T>& own = activations[static_cast<int>(function.activation)];
    if (!function.is_gated) {
      return own.without_gate;
    }
    return function.has_limits() ? own.with_limits : own.with_gate;
  }

  // out[i] = rows[row_of_slot[0]][i] + rows[row_of_slot[1]][i] + ... ; negative rows are skipped.
  void (*sum_rows)(const T* rows, const int64_t* row_of_slot, int64_t num_slots, int64_t width,
                   T* out);

  // to[i] += scale x addend[i], rounded once.
  void (*add_scaled)(const T* addend, double scale, int64_t width, T* to);
  // The same, to sums that are not rounded to T; round_to() rounds them.
  void (*add_scaled_to_sums)(const T* addend, double scale, int64_t width, Sum<T>* sums);
  void (*round_to)(const Sum<T>* sums, int64_t width, T* to);
  // Sum of a[i] x b[i].
  double (*dot)(const T* a, const T* b, int64_t width);
};

struct CpuKernels {
  const char* name;
  TypedKernels<double> fp64;
  TypedKernels<float> fp32;
  TypedKernels<Bf16Bits> bf16;
};

enum class CpuIsa { kBaseline, kAvx2, kAvx512, kAvx512Bf16, kAmx };

// The kernels for one instruction set, or nullptr where this machine or build lacks it.
const CpuKernels* cpu_kernels_for(CpuIsa isa);

// The fastest that this machine has and ATEN_CPU_CAPABILITY, libtorch's own switch, allows.
const CpuKernels& cpu_kernels();

}  // namespace switchyard
