#pragma once

// What the bias of a linear layer adds to a row, and its gradients. Only for the kernels_*.cpp
// files.

#include "ops/cpu/kernels.h"
#include "ops/cpu/vector.h"

namespace switchyard {
namespace {

template <class T>
void add_scaled(const T* addend, double scale, int64_t width, T* to) {
  constexpr int64_t kWidth = kLanes<Sum<T>>;
  const auto scales = broadcast(static_cast<Sum<T>>(scale));
  int64_t i = 0;
  for (; i + kWidth <= width; i += kWidth) {
    store_sums(to + i, load_sums(to + i) + load_sums(addend + i) * scales);
  }
  if (i < width) {
    const int64_t rest = width - i;
    store_sums(to + i, load_sums(to + i, rest) + load_sums(addend + i, rest) * scales, rest);
  }
}

template <class T>
void add_scaled_to_sums(const T* addend, double scale, int64_t width, Sum<T>* sums) {
  constexpr int64_t kWidth = kLanes<Sum<T>>;
  const auto scales = broadcast(static_cast<Sum<T>>(scale));
  int64_t i = 0;
  for (; i + kWidth <= width; i += kWidth) {
    store(sums + i, load(sums + i) + load_sums(addend + i) * scales);
  }
  if (i < width) {
    const int64_t rest = width - i;
    store_sums(sums + i, load_sums(sums + i, rest) + load_sums(addend + i, rest) * scales, rest);
  }
}

template <class T>
double dot(const T* a, const T* b, int64_t width) {
  constexpr int64_t kWidth = kLanes<Sum<T>>;
  Vector<Sum<T>> sums = {};
  int64_t i = 0;
  for (; i + kWidth <= width; i += kWidth) {
    sums += load_sums(a + i) * load_sums(b + i);
  }
  if (i < width) {
    sums += load_sums(a + i, width - i) * load_sums(b + i, width - i);
  }
  return sum_of_lanes<Sum<T>>(sums);
}

template <class T>
void round_to(const Sum<T>* sums, int64_t width, T* to) {
  constexpr int64_t kWidth = kLanes<Sum<T>>;
  int64_t i = 0;
  for (; i + kWidth <= width; i += kWidth) {
    store_sums(to + i, load(sums + i));
  }
  if (i < width) {
    store_sums(to + i, load_sums(sums + i, width - i), width - i);
  }
}

}  // namespace
}  // namespace switchyard
