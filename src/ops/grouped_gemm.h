#pragma once

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

// Scratch memory of the calling thread for a kernel's gemm: kGemmWorkspaceBytes.
void* gemm_workspace();

// Rows [first_row, first_row + m) and columns [first_column, first_column + n) of a product.
template <class T>
MatrixProduct<T> part_of(const MatrixProduct<T>& product, int64_t first_row, int64_t m,
                         int64_t first_column, int64_t n) {
  MatrixProduct<T> part = product;
  part.a += product.a_transposed ? first_row : first_row * product.a_stride;
  part.b += product.b_transposed ? first_column * product.b_stride : first_column;
  part.c += first_row * product.c_stride + first_column;
  part.m = m;
  part.n = n;
  return part;
}

}  // namespace switchyard
