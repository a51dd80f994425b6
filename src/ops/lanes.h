#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

#include <ATen/core/Tensor.h>

#include "ops/float_types.h"

// Compiles a function three times, for AVX-512, AVX2 and any x86-64; the loader picks one. Its body
// is plain loops that the compiler vectorises. All three give the same bits: multiply and add are
// never fused (-ffp-contract=off) and sums run over kLanes fixed lanes. Only for functions that are
// no templates; templates and helpers that they call must be always_inline.
#define SWITCHYARD_VECTOR_CLONES [[gnu::target_clones("avx512f", "avx2", "default")]]
#define SWITCHYARD_INLINE [[gnu::always_inline]] inline

namespace switchyard {

SWITCHYARD_INLINE double widen(double value) {
  return value;
}
SWITCHYARD_INLINE float widen(float value) {
  return value;
}
SWITCHYARD_INLINE float widen(at::BFloat16 value) {
  return std::bit_cast<float>(static_cast<uint32_t>(value.x) << 16);
}

SWITCHYARD_INLINE void narrow(double value, double& to) {
  to = value;
}
SWITCHYARD_INLINE void narrow(float value, float& to) {
  to = value;
}
// To the nearest, ties to even, as at::BFloat16 rounds but without branches.
SWITCHYARD_INLINE void narrow(float value, at::BFloat16& to) {
  const auto bits = std::bit_cast<uint32_t>(value);
  const uint32_t rounded = (bits + 0x7fffU + ((bits >> 16) & 1U)) >> 16;
  to.x = static_cast<uint16_t>(value != value ? 0x7fc0U : rounded);
}

// exp(x) within 2 units in the last place; 0 below the smallest normal number.
SWITCHYARD_INLINE float vector_exp(float x) {
  constexpr float kLowest = -87.33654F;  // log of the smallest normal number
  constexpr float kHighest = 89.0F;      // rounds to 2^128, infinity
  float clamped = x < kLowest ? kLowest : x;
  clamped = clamped > kHighest ? kHighest : clamped;
  // Adding 1.5 x 2^23 leaves the nearest integer in the low bits.
  constexpr float kRound = 12582912.0F;
  const float shifted = clamped * 1.44269504F + kRound;
  const float exponent = shifted - kRound;
  float r = clamped - exponent * 0.693359375F;
  r = r + exponent * 2.12194440e-4F;
  // Polynomial of Cephes' expf on [-log(2)/2, log(2)/2].
  float p = 1.9875691500e-4F;
  p = p * r + 1.3981999507e-3F;
  p = p * r + 8.3334519073e-3F;
  p = p * r + 4.1665795894e-2F;
  p = p * r + 1.6666665459e-1F;
  p = p * r + 5.0000001201e-1F;
  p = p * (r * r) + r + 1.0F;
  const uint32_t scale_bits = (std::bit_cast<uint32_t>(shifted) + 127U) << 23;
  const float result = p * std::bit_cast<float>(scale_bits);
  return x < kLowest ? 0.0F : result;
}
SWITCHYARD_INLINE double vector_exp(double x) {
  return std::exp(x);
}

constexpr int64_t kLanes = 32;  // add_half below counts on it

// lanes[i] += lanes[kHalf + i] for i below kHalf.
template <int64_t kHalf, class A>
SWITCHYARD_INLINE void add_half(A* lanes) {
#pragma omp simd
  for (int64_t lane = 0; lane < kHalf; ++lane) {
    lanes[lane] += lanes[kHalf + lane];
  }
}

// Sum of term(i) for i below n: lane j adds the terms of i = j modulo kLanes in rising order, then
// the lanes are added in pairs.
template <class A, class Term>
SWITCHYARD_INLINE A lane_sum(int64_t n, Term term) {
  A lanes[kLanes] = {};
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
#pragma omp simd
    for (int64_t lane = 0; lane < kLanes; ++lane) {
      lanes[lane] += term(i + lane);
    }
  }
  for (int64_t lane = 0; i + lane < n; ++lane) {
    lanes[lane] += term(i + lane);
  }
  add_half<kLanes / 2>(lanes);
  add_half<kLanes / 4>(lanes);
  add_half<kLanes / 8>(lanes);
  add_half<kLanes / 16>(lanes);
  add_half<kLanes / 32>(lanes);
  return lanes[0];
}

}  // namespace switchyard
