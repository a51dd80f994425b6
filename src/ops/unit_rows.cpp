#include "ops/unit_rows.h"

#include <algorithm>
#include <cmath>

#include <ATen/ATen.h>

#include "ops/float_types.h"
#include "ops/lanes.h"
#include "ops/parallel_tasks.h"

namespace switchyard {
namespace {

constexpr double kEpsilon = 1e-6;

template <class T>
SWITCHYARD_INLINE T dot_body(const T* a, const T* b, int64_t n) {
  return lane_sum<T>(
      n, [=](int64_t i) __attribute__((always_inline)) { return a[i] * b[i]; });
}
// to[row] = scale x[row] / sqrt(sum of squares + epsilon).
template <class T>
SWITCHYARD_INLINE void normalise_rows_body(const T* x, int64_t begin, int64_t end, int64_t width,
                                           T scale, T* to) {
  for (int64_t row = begin; row < end; ++row) {
    const T* from = x + row * width;
    const T factor = scale / std::sqrt(dot_body(from, from, width) + static_cast<T>(kEpsilon));
    T* target = to + row * width;
#pragma omp simd
    for (int64_t i = 0; i < width; ++i) {
      target[i] = factor * from[i];
    }
  }
}
SWITCHYARD_VECTOR_CLONES void normalise_rows(const double* x, int64_t begin, int64_t end,
                                             int64_t width, double scale, double* to) {
  normalise_rows_body(x, begin, end, width, scale, to);
}
SWITCHYARD_VECTOR_CLONES void normalise_rows(const float* x, int64_t begin, int64_t end,
                                             int64_t width, float scale, float* to) {
  normalise_rows_body(x, begin, end, width, scale, to);
}

// grad: of unit_rows()' result, becomes that of x.
template <class T>
SWITCHYARD_INLINE void normalise_grad_rows_body(const T* x, int64_t begin, int64_t end,
                                                int64_t width, T scale, T* grad) {
  for (int64_t row = begin; row < end; ++row) {
    const T* from = x + row * width;
    T* to = grad + row * width;
    const T inverse = 1 / std::sqrt(dot_body(from, from, width) + static_cast<T>(kEpsilon));
    const T along = dot_body(from, to, width) * inverse * inverse;
    const T factor = scale * inverse;
#pragma omp simd
    for (int64_t i = 0; i < width; ++i) {
      to[i] = factor * (to[i] - along * from[i]);
    }
  }
}
SWITCHYARD_VECTOR_CLONES void normalise_grad_rows(const double* x, int64_t begin, int64_t end,
                                                  int64_t width, double scale, double* grad) {
  normalise_grad_rows_body(x, begin, end, width, scale, grad);
}
SWITCHYARD_VECTOR_CLONES void normalise_grad_rows(const float* x, int64_t begin, int64_t end,
                                                  int64_t width, float scale, float* grad) {
  normalise_grad_rows_body(x, begin, end, width, scale, grad);
}

// Calls run(first row, row behind the last) for all of the rows in x.
template <class Run>
void for_rows_of(const at::Tensor& x, Run run) {
  constexpr int64_t kRowsPerTask = 128;
  const int64_t rows = x.size(0) * x.size(1);
  run_tasks((rows + kRowsPerTask - 1) / kRowsPerTask, [&](int64_t task) {
    const int64_t begin = task * kRowsPerTask;
    run(begin, std::min(rows, begin + kRowsPerTask));
  });
}

}  // namespace

at::Tensor unit_rows(const at::Tensor& x, double scale) {
  at::Tensor units = at::empty_like(x);
  visit_wide_type(x.scalar_type(), [&](auto type) {
    using T = decltype(type);
    const T* from = x.const_data_ptr<T>();
    T* to = units.mutable_data_ptr<T>();
    for_rows_of(x, [&](int64_t begin, int64_t end) {
      normalise_rows(from, begin, end, x.size(2), static_cast<T>(scale), to);
    });
  });
  return units;
}

void unit_rows_backward(const at::Tensor& x, double scale, at::Tensor& grad) {
  visit_wide_type(x.scalar_type(), [&](auto type) {
    using T = decltype(type);
    const T* from = x.const_data_ptr<T>();
    T* to = grad.mutable_data_ptr<T>();
    for_rows_of(x, [&](int64_t begin, int64_t end) {
      normalise_grad_rows(from, begin, end, x.size(2), static_cast<T>(scale), to);
    });
  });
}

}  // namespace switchyard
