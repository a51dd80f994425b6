#include <array>
#include <memory>
#include <vector>

#include <gtest/gtest.h>

#include <ATen/ATen.h>

#include "ops/cpu/kernels.h"
#include "ops/kernel_types.h"
#include "ops/op_checks.h"

// Products whose sums are kept unrounded, or added to what is there; the others are in
// cpu_kernels_test.cpp.
namespace switchyard {
namespace {

template <class T>
void expect_wide_product(const TypedKernels<T>& kernels, at::ScalarType type, int64_t m, int64_t n,
                         int64_t k, bool accumulate) {
  const at::Tensor a = at::randn({k, m}, at::kDouble).to(type);  // stored transposed
  const at::Tensor b = at::randn({k, n}, at::kDouble).to(type);
  const auto wide_type = type == at::kDouble ? at::kDouble : at::kFloat;
  const int64_t stride = n + 3;
  at::Tensor c = at::randn({m, stride}, at::kDouble).to(wide_type);
  at::Tensor expected = c.to(at::kDouble);
  const at::Tensor product = at::mm(a.to(at::kDouble).t(), b.to(at::kDouble));
  at::Tensor part = expected.narrow(1, 0, n);
  if (accumulate) {
    part.add_(product);
  } else {
    part.copy_(product);
  }
  std::vector<double> workspace(kGemmWorkspaceBytes / sizeof(double) + 8);
  void* aligned = workspace.data();
  size_t space = workspace.size() * sizeof(double);
  std::align(64, kGemmWorkspaceBytes, aligned, space);
  kernels.gemm({.a = values_of<T>(a),
                .a_stride = m,
                .a_transposed = true,
                .b = values_of<T>(b),
                .b_stride = n,
                .b_transposed = false,
                .c = nullptr,
                .c_stride = stride,
                .m = m,
                .n = n,
                .k = k,
                .wide_c = mutable_values_of<Sum<T>>(c),
                .accumulate = accumulate},
               aligned);
  // Sums of products of bf16 values are taken in fp32, with no rounding to bf16 between or after.
  EXPECT_LE(relative_error(c, expected), type == at::kDouble ? 1e-14 : 2e-6)
      << type << " " << m << " x " << n << " x " << k;
}

TEST(WideProduct, KeepsSumsUnroundedAndAddsThemForAllInstructionSets) {
  at::manual_seed(1);
  for (const CpuIsa isa :
       {CpuIsa::kBaseline, CpuIsa::kAvx2, CpuIsa::kAvx512, CpuIsa::kAvx512Bf16}) {
    const CpuKernels* kernels = cpu_kernels_for(isa);
    if (kernels == nullptr) {
      continue;
    }
    for (const auto& [m, n, k] : std::vector<std::array<int64_t, 3>>{
             {1, 1, 1}, {9, 33, 7}, {16, 64, 512}, {13, 50, 1030}, {5, 31, 0}}) {
      for (const bool accumulate : {false, true}) {
        expect_wide_product(kernels->fp64, at::kDouble, m, n, k, accumulate);
        expect_wide_product(kernels->fp32, at::kFloat, m, n, k, accumulate);
        expect_wide_product(kernels->bf16, at::kBFloat16, m, n, k, accumulate);
      }
    }
  }
}

}  // namespace
}  // namespace switchyard
