#pragma once

// The sum of a token's copies. Only for the kernels_*.cpp files.

#include "ops/cpu/kernels.h"
#include "ops/cpu/vector.h"

namespace switchyard {
namespace {

template <class T>
void sum_rows(const T* rows, const int64_t* row_of_slot, int64_t num_slots, int64_t width, T* out) {
  constexpr int64_t kWidth = kLanes<Sum<T>>;
  // Several vectors at a time: the sums of one wait for each other.
  constexpr int64_t kStrip = 4;
  int64_t i = 0;
  for (; i + kStrip * kWidth <= width; i += kStrip * kWidth) {
    Vector<Sum<T>> sums[kStrip] = {};
    for (int64_t slot = 0; slot < num_slots; ++slot) {
      if (row_of_slot[slot] < 0) {
        continue;
      }
      const T* row = rows + row_of_slot[slot] * width + i;
      for (int64_t strip = 0; strip < kStrip; ++strip) {
        sums[strip] += load_sums(row + strip * kWidth);
      }
    }
    for (int64_t strip = 0; strip < kStrip; ++strip) {
      store_sums(out + i + strip * kWidth, sums[strip]);
    }
  }
  for (; i < width; i += kWidth) {
    const int64_t count = width - i < kWidth ? width - i : kWidth;
    Vector<Sum<T>> sums = {};
    for (int64_t slot = 0; slot < num_slots; ++slot) {
      if (row_of_slot[slot] >= 0) {
        sums += load_sums(rows + row_of_slot[slot] * width + i, count);
      }
    }
    store_sums(out + i, sums, count);
  }
}

}  // namespace
}  // namespace switchyard
