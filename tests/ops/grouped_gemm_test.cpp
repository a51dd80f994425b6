#include "ops/grouped_gemm.h"

#include <atomic>
#include <stdexcept>
#include <vector>

#include <gtest/gtest.h>

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include "ops/parallel_tasks.h"

namespace switchyard {
namespace {

TEST(EvenCut, GivesBlocksThatKernelsTake) {
  for (const int64_t target : {64, 128, 256}) {
    for (int64_t rows = 1; rows < 3000; ++rows) {
      const int64_t each = even_cut(rows, target);
      ASSERT_LE(each, kGemmRows) << rows << " rows, target " << target;
      ASSERT_EQ(each % 8, 0);
      ASSERT_GE(each, rows < target ? rows : target / 2);
    }
  }
}

TEST(ForEachBlock, CoversEveryElementOnce) {
  std::vector<float> memory(300 * 1000);
  const MatrixProduct<float> product{.a = memory.data(),
                                     .a_stride = 0,
                                     .b = memory.data(),
                                     .b_stride = 0,
                                     .c = memory.data(),
                                     .c_stride = 1000,
                                     .m = 300,
                                     .n = 700,
                                     .k = 0};
  std::vector<int> visits(300 * 1000, 0);
  for_each_block(product, Cut{128, 512}, [&](const MatrixProduct<float>& block) {
    const int64_t first = block.c - product.c;
    for (int64_t row = 0; row < block.m; ++row) {
      for (int64_t column = 0; column < block.n; ++column) {
        ++visits[static_cast<size_t>(first + row * 1000 + column)];
      }
    }
  });
  for (int64_t i = 0; i < 300 * 1000; ++i) {
    ASSERT_EQ(visits[static_cast<size_t>(i)], i % 1000 < 700 ? 1 : 0);
  }
}

TEST(RunTasks, RunsEveryTaskOnceOnAnyNumberOfThreads) {
  const int threads = at::get_num_threads();
  for (const int count : {1, 2, 5}) {
    at::set_num_threads(count);
    std::vector<std::atomic<int>> runs(100);
    run_tasks(100, [&](int64_t task) { ++runs[static_cast<size_t>(task)]; });
    run_tasks(0, [&](int64_t) { FAIL(); });
    for (const auto& number : runs) {
      EXPECT_EQ(number, 1);
    }
  }
  at::set_num_threads(threads);
}

TEST(RunTasks, PassesAnExceptionOn) {
  EXPECT_THROW(run_tasks(10,
                         [](int64_t task) {
                           if (task == 7) {
                             throw std::runtime_error("seven");
                           }
                         }),
               std::runtime_error);
}

}  // namespace
}  // namespace switchyard
