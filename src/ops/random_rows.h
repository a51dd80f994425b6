#pragma once

#include <cstdint>

#include <ATen/core/Tensor.h>

#include "base/random.h"

namespace switchyard {

// Random numbers for rows that have numbers of their own: column c of row r is element
// (first_row + r) x columns + c of the stream, so that it does not matter how rows are cut.
// [rows, columns] fp32 or fp64, without gradient. The same bits for every number of threads.
at::Tensor uniform_rows(const RandomStream& stream, int64_t first_row, int64_t rows,
                        int64_t columns, double low, double high, at::ScalarType dtype);
at::Tensor normal_rows(const RandomStream& stream, int64_t first_row, int64_t rows, int64_t columns,
                       double std, at::ScalarType dtype);

}  // namespace switchyard
