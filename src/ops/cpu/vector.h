#pragma once

// Vectors as wide as the instruction set that this file is being compiled for, in GCC's vector
// extension: one source for AVX-512, AVX2, SSE2 and NEON. Only for files in ops/cpu.

#include <cstdint>
#include <utility>

#include "ops/cpu/kernels.h"

namespace switchyard {
namespace {

#if defined(__AVX512F__)
constexpr int64_t kVectorBytes = 64;
#elif defined(__AVX2__)
constexpr int64_t kVectorBytes = 32;
#else
constexpr int64_t kVectorBytes = 16;
#endif

template <class T>
constexpr int64_t kLanes = kVectorBytes / static_cast<int64_t>(sizeof(T));

template <class T, int64_t kBytes = kVectorBytes>
struct VectorType {
  using Aligned [[gnu::vector_size(kBytes)]] = T;
  using Unaligned [[gnu::vector_size(kBytes), gnu::aligned(1), gnu::may_alias]] = T;
};
template <class T>
using Vector = typename VectorType<T>::Aligned;

// --- one value -----------------------------------------------------------------------------------

inline double to_sum(double value) {
  return value;
}
inline float to_sum(float value) {
  return value;
}
inline float to_sum(Bf16Bits value) {
  return __builtin_bit_cast(float, static_cast<uint32_t>(value.bits) << 16);
}

// --- a vector ------------------------------------------------------------------------------------

template <class T>
inline Vector<T> load(const T* from) {
  return *reinterpret_cast<const typename VectorType<T>::Unaligned*>(from);
}
template <class T>
inline void store(T* to, Vector<T> value) {
  *reinterpret_cast<typename VectorType<T>::Unaligned*>(to) = value;
}
template <class T>
inline Vector<T> broadcast(T value) {
  return value - Vector<T>{};
}

// bf16 pairs up as half a vector of 16-bit lanes.
using HalfWords = VectorType<uint16_t, kVectorBytes / 2>;
using Words = Vector<uint32_t>;

inline Words load_words(const Bf16Bits* from) {
  const auto half = *reinterpret_cast<const HalfWords::Unaligned*>(from);
  return __builtin_convertvector(half, Words);
}

// Loads kLanes<Sum<T>> values as sums.
inline Vector<double> load_sums(const double* from) {
  return load(from);
}
inline Vector<float> load_sums(const float* from) {
  return load(from);
}
inline Vector<float> load_sums(const Bf16Bits* from) {
  return reinterpret_cast<Vector<float>>(load_words(from) << 16);
}

inline void store_sums(double* to, Vector<double> value) {
  store(to, value);
}
inline void store_sums(float* to, Vector<float> value) {
  store(to, value);
}
// To the nearest bf16, ties to even; NaN stays NaN.
inline void store_sums(Bf16Bits* to, Vector<float> value) {
  const Words bits = reinterpret_cast<Words>(value);
  const Words rounded = (bits + 0x7fff + ((bits >> 16) & 1)) >> 16;
  const Words is_nan = reinterpret_cast<Words>(value != value);
  const Words result = (rounded & ~is_nan) | (is_nan & 0x7fc0);
  *reinterpret_cast<HalfWords::Unaligned*>(to) =
      __builtin_convertvector(result, HalfWords::Aligned);
}

// The first `count` values of a vector; the other lanes are zero, and are not touched in memory.
template <class T>
inline Vector<Sum<T>> load_sums(const T* from, int64_t count) {
  T values[kLanes<Sum<T>>] = {};
  for (int64_t i = 0; i < count; ++i) {
    values[i] = from[i];
  }
  return load_sums(values);
}
template <class T>
inline void store_sums(T* to, Vector<Sum<T>> value, int64_t count) {
  T values[kLanes<Sum<T>>];
  store_sums(values, value);
  for (int64_t i = 0; i < count; ++i) {
    to[i] = values[i];
  }
}

// Lane 0 first.
template <class T>
inline T sum_of_lanes(Vector<T> value) {
  T sum = 0;
  for (int64_t i = 0; i < kLanes<T>; ++i) {
    sum += value[i];
  }
  return sum;
}

// --- transpose -----------------------------------------------------------------------------------

// Exchanges bit `kBit` of the row number with that of the lane number.
template <std::size_t kBit, class V, std::size_t kSize, std::size_t... kLane>
inline void exchange_bit(V (&rows)[kSize], std::index_sequence<kLane...>) {
  for (std::size_t i = 0; i < kSize; ++i) {
    if ((i & kBit) != 0) {
      continue;
    }
    const V low = rows[i];
    const V high = rows[i + kBit];
    rows[i] =
        __builtin_shufflevector(low, high, ((kLane & kBit) == 0 ? kLane : kSize + kLane - kBit)...);
    rows[i + kBit] =
        __builtin_shufflevector(low, high, ((kLane & kBit) == 0 ? kLane + kBit : kSize + kLane)...);
  }
}

// Turns rows into columns: as many rows as a vector has lanes.
template <class V, std::size_t kSize>
inline void transpose(V (&rows)[kSize]) {
  using Lanes = std::make_index_sequence<kSize>;
  exchange_bit<1>(rows, Lanes{});
  if constexpr (kSize > 2) {
    exchange_bit<2>(rows, Lanes{});
  }
  if constexpr (kSize > 4) {
    exchange_bit<4>(rows, Lanes{});
  }
  if constexpr (kSize > 8) {
    exchange_bit<8>(rows, Lanes{});
  }
}

// --- exponential ---------------------------------------------------------------------------------

// e^x = 2^n e^r with n the nearest integer to x / ln 2 and |r| <= ln(2) / 2, by the Taylor series
// of e^r: degree 7 for fp32 (remainder below 2^-26), 13 for fp64 (below 2^-57). ln 2 is taken off
// in two pieces, so that r is exact to the last bit. Below and above the range of the exponent the
// result is that of the limit, e^-87.3 and e^88.3 (708 in fp64); NaN stays NaN.
inline Vector<float> exponential(Vector<float> x) {
  using Ints = Vector<int32_t>;
  x = x < -87.3f ? broadcast(-87.3f) : x;
  x = x > 88.3f ? broadcast(88.3f) : x;
  const float shift = 12582912.0f;  // 1.5 x 2^23: adding it rounds to an integer
  const Vector<float> shifted = x * 1.44269504f + shift;
  const Vector<float> n = shifted - shift;
  const Vector<float> r = (x - n * 0.693359375f) + n * 2.12194440e-4f;
  Vector<float> p = r * (1.0f / 5040) + (1.0f / 720);
  p = p * r + (1.0f / 120);
  p = p * r + (1.0f / 24);
  p = p * r + (1.0f / 6);
  p = p * r + 0.5f;
  p = p * r + 1.0f;
  p = p * r + 1.0f;
  const Ints exponent = reinterpret_cast<Ints>(shifted) << 23;
  return reinterpret_cast<Vector<float>>(reinterpret_cast<Ints>(p) + exponent);
}

inline Vector<double> exponential(Vector<double> x) {
  using Ints = Vector<int64_t>;
  x = x < -708.0 ? broadcast(-708.0) : x;
  x = x > 708.0 ? broadcast(708.0) : x;
  const double shift = 6755399441055744.0;  // 1.5 x 2^52
  const Vector<double> shifted = x * 1.4426950408889634 + shift;
  const Vector<double> n = shifted - shift;
  const Vector<double> r = (x - n * 6.93145751953125e-1) - n * 1.42860682030941723212e-6;
  double factorial = 6227020800.0;  // 13!
  Vector<double> p = broadcast(1.0 / factorial);
  for (int degree = 13; degree >= 1; --degree) {
    factorial /= degree;
    p = p * r + 1.0 / factorial;
  }
  const Ints exponent = reinterpret_cast<Ints>(shifted) << 52;
  return reinterpret_cast<Vector<double>>(reinterpret_cast<Ints>(p) + exponent);
}

}  // namespace
}  // namespace switchyard
