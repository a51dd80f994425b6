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

// How to cut a product for the kernels. Any cut gives the same bits.
struct Cut {
  int64_t rows;     // at most kGemmRows
  int64_t columns;  // at most kGemmColumns
};

// Rows of a block when `rows` are cut into nearly equal blocks of about `target`: up to half more,
// rather than a small rest that would pack an operand for little work. Whole tiles.
inline int64_t even_cut(int64_t rows, int64_t target) {
  constexpr int64_t kTile = 8;
  const int64_t num_blocks = std::max<int64_t>(1, (rows + target / 2) / target);
  const int64_t each = (rows + num_blocks - 1) / num_blocks;
  return (each + kTile - 1) / kTile * kTile;
}

// Calls `work(block)` for the blocks of a product.
template <class T, class Work>
void for_each_block(const MatrixProduct<T>& product, const Cut& cut, Work work) {
  for (int64_t row = 0; row < product.m; row += cut.rows) {
    for (int64_t column = 0; column < product.n; column += cut.columns) {
      work(part_of(product, row, std::min(cut.rows, product.m - row), column,
                   std::min(cut.columns, product.n - column)));
    }
  }
}

}  // namespace switchyard
