#pragma once

#include <cstdint>

namespace switchyard {

// Arithmetic on rows of matrices that lie `stride` elements apart, on the calling thread, with the
// same bits on every processor. `rows` rows of `width` elements each.

// Row i of `to`, whose rows are adjacent, = scale[i] x row i of `from`.
void scale_rows(const double* from, int64_t stride, const double* scale, int64_t rows,
                int64_t width, double* to);
void scale_rows(const float* from, int64_t stride, const float* scale, int64_t rows, int64_t width,
                float* to);

// Row i of `to` += scale[i] x row i of `from`.
void add_scaled_rows(const double* from, int64_t from_stride, const double* scale, int64_t rows,
                     int64_t width, double* to, int64_t stride);
void add_scaled_rows(const float* from, int64_t from_stride, const float* scale, int64_t rows,
                     int64_t width, float* to, int64_t stride);

// The same with one scale for all rows.
void add_rows(const double* from, int64_t from_stride, double scale, int64_t rows, int64_t width,
              double* to, int64_t stride);
void add_rows(const float* from, int64_t from_stride, float scale, int64_t rows, int64_t width,
              float* to, int64_t stride);

// to[i] = sum over j of a[i, j] b[i, j].
void dot_rows(const double* a, int64_t a_stride, const double* b, int64_t b_stride, int64_t rows,
              int64_t width, double* to);
void dot_rows(const float* a, int64_t a_stride, const float* b, int64_t b_stride, int64_t rows,
              int64_t width, float* to);

// to[i] x= scale.
void scale_array(double scale, int64_t n, double* to);
void scale_array(float scale, int64_t n, float* to);

}  // namespace switchyard
