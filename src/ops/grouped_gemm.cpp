#include "ops/grouped_gemm.h"

#include <algorithm>

#include <ATen/Parallel.h>

#include "ops/parallel_tasks.h"
#include "ops/thread_scratch.h"

namespace switchyard {
namespace {

// Rows and columns of a block, about, from the best for one thread to the easiest to share: a block
// packs its part of b for its rows, and its part of a, if need be, for its columns.
constexpr Cut kTargets[] = {{256, 512}, {256, 128}, {128, 128}, {64, 128}};

template <class T>
std::vector<MatrixProduct<T>> cut_into_blocks(const std::vector<MatrixProduct<T>>& products,
                                              const Cut& target) {
  std::vector<MatrixProduct<T>> blocks;
  for (const MatrixProduct<T>& product : products) {
    for_each_block(product, Cut{even_cut(product.m, target.rows), target.columns},
                   [&](const MatrixProduct<T>& block) { blocks.push_back(block); });
  }
  return blocks;
}

// Whether threads that take the blocks one by one end at about the same time.
template <class T>
bool can_be_shared(const std::vector<MatrixProduct<T>>& blocks) {
  constexpr int64_t kSharesPerThread = 4;
  const int64_t threads = at::get_num_threads();
  int64_t total = 0;
  int64_t largest = 0;
  for (const MatrixProduct<T>& block : blocks) {
    const int64_t work = block.m * block.n * block.k;
    total += work;
    largest = std::max(largest, work);
  }
  return threads == 1 || largest * kSharesPerThread * threads <= total;
}

template <class T>
void multiply(const TypedKernels<T>& kernels, std::vector<MatrixProduct<T>> products) {
  std::stable_sort(products.begin(), products.end(),
                   [](const auto& left, const auto& right) { return left.k > right.k; });
  std::vector<MatrixProduct<T>> blocks;
  for (const Cut& target : kTargets) {
    blocks = cut_into_blocks(products, target);
    if (can_be_shared(blocks)) {
      break;
    }
  }
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
