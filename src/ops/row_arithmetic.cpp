#include "ops/row_arithmetic.h"

#include "ops/lanes.h"

namespace switchyard {
namespace {

template <class T>
SWITCHYARD_INLINE void scale_rows_body(const T* from, int64_t stride, const T* scale, int64_t rows,
                                       int64_t width, T* to) {
  for (int64_t row = 0; row < rows; ++row) {
    const T* source = from + row * stride;
    const T factor = scale[row];
    T* target = to + row * width;
#pragma omp simd
    for (int64_t i = 0; i < width; ++i) {
      target[i] = factor * source[i];
    }
  }
}

template <class T>
SWITCHYARD_INLINE void add_row(const T* from, T scale, int64_t width, T* to) {
#pragma omp simd
  for (int64_t i = 0; i < width; ++i) {
    to[i] += scale * from[i];
  }
}

template <class T>
SWITCHYARD_INLINE void add_scaled_rows_body(const T* from, int64_t from_stride, const T* scale,
                                            int64_t rows, int64_t width, T* to, int64_t stride) {
  for (int64_t row = 0; row < rows; ++row) {
    add_row(from + row * from_stride, scale[row], width, to + row * stride);
  }
}

template <class T>
SWITCHYARD_INLINE void add_rows_body(const T* from, int64_t from_stride, T scale, int64_t rows,
                                     int64_t width, T* to, int64_t stride) {
  for (int64_t row = 0; row < rows; ++row) {
    add_row(from + row * from_stride, scale, width, to + row * stride);
  }
}

template <class T>
SWITCHYARD_INLINE void dot_rows_body(const T* a, int64_t a_stride, const T* b, int64_t b_stride,
                                     int64_t rows, int64_t width, T* to) {
  for (int64_t row = 0; row < rows; ++row) {
    const T* left = a + row * a_stride;
    const T* right = b + row * b_stride;
    to[row] = lane_sum<T>(
        width, [=](int64_t i) __attribute__((always_inline)) { return left[i] * right[i]; });
  }
}

template <class T>
SWITCHYARD_INLINE void scale_array_body(T scale, int64_t n, T* to) {
#pragma omp simd
  for (int64_t i = 0; i < n; ++i) {
    to[i] *= scale;
  }
}

}  // namespace

SWITCHYARD_VECTOR_CLONES void scale_rows(const double* from, int64_t stride, const double* scale,
                                         int64_t rows, int64_t width, double* to) {
  scale_rows_body(from, stride, scale, rows, width, to);
}
SWITCHYARD_VECTOR_CLONES void scale_rows(const float* from, int64_t stride, const float* scale,
                                         int64_t rows, int64_t width, float* to) {
  scale_rows_body(from, stride, scale, rows, width, to);
}
SWITCHYARD_VECTOR_CLONES void add_scaled_rows(const double* from, int64_t from_stride,
                                              const double* scale, int64_t rows, int64_t width,
                                              double* to, int64_t stride) {
  add_scaled_rows_body(from, from_stride, scale, rows, width, to, stride);
}
SWITCHYARD_VECTOR_CLONES void add_scaled_rows(const float* from, int64_t from_stride,
                                              const float* scale, int64_t rows, int64_t width,
                                              float* to, int64_t stride) {
  add_scaled_rows_body(from, from_stride, scale, rows, width, to, stride);
}
SWITCHYARD_VECTOR_CLONES void add_rows(const double* from, int64_t from_stride, double scale,
                                       int64_t rows, int64_t width, double* to, int64_t stride) {
  add_rows_body(from, from_stride, scale, rows, width, to, stride);
}
SWITCHYARD_VECTOR_CLONES void add_rows(const float* from, int64_t from_stride, float scale,
                                       int64_t rows, int64_t width, float* to, int64_t stride) {
  add_rows_body(from, from_stride, scale, rows, width, to, stride);
}
SWITCHYARD_VECTOR_CLONES void dot_rows(const double* a, int64_t a_stride, const double* b,
                                       int64_t b_stride, int64_t rows, int64_t width, double* to) {
  dot_rows_body(a, a_stride, b, b_stride, rows, width, to);
}
SWITCHYARD_VECTOR_CLONES void dot_rows(const float* a, int64_t a_stride, const float* b,
                                       int64_t b_stride, int64_t rows, int64_t width, float* to) {
  dot_rows_body(a, a_stride, b, b_stride, rows, width, to);
}
SWITCHYARD_VECTOR_CLONES void scale_array(double scale, int64_t n, double* to) {
  scale_array_body(scale, n, to);
}
SWITCHYARD_VECTOR_CLONES void scale_array(float scale, int64_t n, float* to) {
  scale_array_body(scale, n, to);
}

}  // namespace switchyard
