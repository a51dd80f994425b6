#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "ops/cpu/kernels.h"

namespace switchyard {

// Runs all products in one parallel region, cut into blocks. Products with the largest k start
// first. The products may share operands but not results. The same bits for every number of
// threads.
void multiply_all(const TypedKernels<double>& kernels, std::vector<MatrixProduct<double>> products);
void multiply_all(const TypedKernels<float>& kernels, std::vector<MatrixProduct<float>> products);
void multiply_all(const TypedKernels<Bf16Bits>& kernels,
                  std::vector<MatrixProduct<Bf16Bits>> products);

// Rows [first_row, first_row + m) and columns [first_column, first_column + n) of a product.
template <class T>
MatrixProduct<T> part_of(const MatrixProduct<T>& product, int64_t first_row, int64_t m,
                         int64_t first_column, int64_t n) {
  MatrixProduct<T> part = product;
  part.a += product.a_transposed ? first_row : first_row * product.a_stride;
  part.b += product.b_transposed ? first_column * product.b_stride : first_column;
  if (product.wide_c != nullptr) {
    part.wide_c += first_row * product.c_stride + first_column;
  } else {
    part.c += first_row * product.c_stride + first_column;
  }
  part.m = m;
  part.n = n;
  return part;
}

// Cuts a product into what a kernel takes at once, with `rows` of at most kGemmRows.
template <class T, class Work>
void for_each_block(const MatrixProduct<T>& product, int64_t rows, Work work) {
  for (int64_t column = 0; column < product.n; column += kGemmColumns) {
    for (int64_t row = 0; row < product.m; row += rows) {
      work(part_of(product, row, std::min(rows, product.m - row), column,
                   std::min(kGemmColumns, product.n - column)));
    }
  }
}

}  // namespace switchyard
