#include "ops/grouped_gemm.h"

#include <algorithm>

#include "ops/parallel_tasks.h"
#include "ops/thread_scratch.h"

namespace switchyard {
namespace {

// Half of what a kernel takes when both operands have to be packed: a is as dear as b then.
template <class T>
int64_t rows_per_block(const MatrixProduct<T>& product) {
  return product.a_transposed ? kGemmRows / 2 : kGemmRows;
}

template <class T>
std::vector<MatrixProduct<T>> cut_into_blocks(const std::vector<MatrixProduct<T>>& products) {
  std::vector<MatrixProduct<T>> blocks;
  for (const MatrixProduct<T>& product : products) {
    const int64_t rows = rows_per_block(product);
    for_each_block(product, rows, [&](const MatrixProduct<T>& block) { blocks.push_back(block); });
  }
  return blocks;
}

template <class T>
void multiply(const TypedKernels<T>& kernels, std::vector<MatrixProduct<T>> products) {
  std::stable_sort(products.begin(), products.end(),
                   [](const auto& left, const auto& right) { return left.k > right.k; });
  const std::vector<MatrixProduct<T>> blocks = cut_into_blocks(products);
  run_tasks(static_cast<int64_t>(blocks.size()), [&](int64_t block) {
    kernels.gemm(blocks[static_cast<size_t>(block)], thread_scratch(kGemmWorkspaceBytes));
  });
}

}  // namespace

void multiply_all(const TypedKernels<double>& kernels,
                  std::vector<MatrixProduct<double>> products) {
  multiply(kernels, std::move(products));
}
void multiply_all(const TypedKernels<float>& kernels, std::vector<MatrixProduct<float>> products) {
  multiply(kernels, std::move(products));
}
void multiply_all(const TypedKernels<Bf16Bits>& kernels,
                  std::vector<MatrixProduct<Bf16Bits>> products) {
  multiply(kernels, std::move(products));
}

}  // namespace switchyard
