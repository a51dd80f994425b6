#include <bit>
#include <cmath>
#include <limits>
#include <vector>

#include <gtest/gtest.h>

#include "base/random.h"
#include "ops/cpu/amx_gemm.h"
#include "ops/cpu/kernels.h"
#include "ops/thread_scratch.h"

// The kernels of every instruction set that this machine has. What the operators add is tested
// through them.
namespace switchyard {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

double widen(double value) {
  return value;
}
double widen(float value) {
  return value;
}
double widen(Bf16Bits value) {
  return std::bit_cast<float>(static_cast<uint32_t>(value.bits) << 16);
}
template <class T>
T narrow(double value) {
  return static_cast<T>(value);
}
// Cut off, not rounded: only for making inputs.
template <>
Bf16Bits narrow<Bf16Bits>(double value) {
  const auto bits = std::bit_cast<uint32_t>(static_cast<float>(value));
  return {static_cast<uint16_t>(bits >> 16)};
}

// The part [rows, columns] of a larger matrix whose other elements are NaN.
template <class T>
struct Matrix {
  int64_t rows;
  int64_t columns;
  int64_t stride;
  std::vector<T> values;

  Matrix(int64_t num_rows, int64_t num_columns, int64_t gap, const RandomStream* random)
      : rows(num_rows), columns(num_columns), stride(num_columns + gap) {
    values.assign(static_cast<size_t>((rows + 1) * stride), narrow<T>(kNan));
    for (int64_t i = 0; random != nullptr && i < rows * columns; ++i) {
      at(i / columns, i % columns) = narrow<T>(random->normal(static_cast<uint64_t>(i)));
    }
  }
  T& at(int64_t row, int64_t column) { return values[static_cast<size_t>(row * stride + column)]; }
};

struct Case {
  int64_t m;
  int64_t n;
  int64_t k;
  int64_t gap;
};

template <class T>
double tolerance() {
  return sizeof(T) == 8 ? 1e-15 : sizeof(T) == 4 ? 1e-6 : 4e-3;
}

template <class T>
void expect_product(const TypedKernels<T>& kernels, const Case& sizes, bool a_transposed,
                    bool b_transposed) {
  const auto [m, n, k, gap] = sizes;
  const RandomStream random_a(1, "a");
  const RandomStream random_b(1, "b");
  Matrix<T> a(a_transposed ? k : m, a_transposed ? m : k, gap, &random_a);
  Matrix<T> b(b_transposed ? n : k, b_transposed ? k : n, gap, &random_b);
  Matrix<T> c(m, n, gap, nullptr);
  kernels.gemm({.a = a.values.data(),
                .a_stride = a.stride,
                .a_transposed = a_transposed,
                .b = b.values.data(),
                .b_stride = b.stride,
                .b_transposed = b_transposed,
                .c = c.values.data(),
                .c_stride = c.stride,
                .m = m,
                .n = n,
                .k = k},
               thread_scratch(kGemmWorkspaceBytes));
  for (int64_t i = 0; i < m; ++i) {
    for (int64_t j = 0; j < n; ++j) {
      double sum = 0;
      double size = 0;
      for (int64_t l = 0; l < k; ++l) {
        const double term = widen(a_transposed ? a.at(l, i) : a.at(i, l)) *
                            widen(b_transposed ? b.at(j, l) : b.at(l, j));
        sum += term;
        size += std::abs(term);
      }
      ASSERT_LE(std::abs(widen(c.at(i, j)) - sum), tolerance<T>() * size)
          << "element " << i << ", " << j;
    }
  }
  for (int64_t i = 0; i <= m; ++i) {
    for (int64_t j = i < m ? n : 0; j < c.stride; ++j) {
      ASSERT_TRUE(std::isnan(widen(c.at(i, j)))) << "wrote outside, at " << i << ", " << j;
    }
  }
}

template <class T>
void expect_products(const TypedKernels<T>& kernels) {
  const std::vector<Case> cases = {
      {1, 1, 1, 0},    {2, 3, 0, 1},    {5, 31, 7, 0},     {8, 32, 64, 0},    {9, 33, 65, 3},
      {4, 16, 128, 2}, {13, 70, 30, 1}, {256, 128, 33, 0}, {31, 128, 513, 0}, {40, 96, 1100, 2}};
  for (const Case& sizes : cases) {
    for (const auto& [a_transposed, b_transposed] : std::vector<std::pair<bool, bool>>{
             {false, false}, {false, true}, {true, false}, {true, true}}) {
      SCOPED_TRACE(testing::Message()
                   << sizeof(T) << " bytes, " << sizes.m << " x " << sizes.n << " x " << sizes.k
                   << (a_transposed ? " a^T" : "") << (b_transposed ? " b^T" : ""));
      expect_product(kernels, sizes, a_transposed, b_transposed);
    }
  }
}

class CpuKernels : public testing::TestWithParam<CpuIsa> {
 protected:
  void SetUp() override {
    kernels_ = cpu_kernels_for(GetParam());
    if (kernels_ == nullptr) {
      GTEST_SKIP() << "this machine lacks the instruction set";
    }
  }
  const switchyard::CpuKernels* kernels_ = nullptr;
};

TEST_P(CpuKernels, MultiplyEverySizeLikeANaiveLoop) {
  expect_products(kernels_->fp64);
  expect_products(kernels_->fp32);
  expect_products(kernels_->bf16);
}

// oneDNN takes the same operands without AMX, so that their order can be tested without it.
TEST(AmxGemm, MultipliesEverySizeLikeANaiveLoop) {
  const switchyard::CpuKernels* kernels = cpu_kernels_for(CpuIsa::kAvx512Bf16);
  if (kernels == nullptr) {
    GTEST_SKIP() << "this machine lacks AVX-512 with bf16";
  }
  TypedKernels<Bf16Bits> with_amx = kernels->bf16;
  with_amx.gemm = amx_gemm;
  expect_products(with_amx);
}

template <class T>
void expect_gated_silu(const TypedKernels<T>& kernels) {
  const RandomStream random(2, "gated silu");
  for (const int64_t ffn : {1, 3, 8, 16, 37, 64}) {
    Matrix<T> gate_up(1, 2 * ffn, 1, &random);
    Matrix<T> grad(1, ffn, 1, &random);
    Matrix<T> out(1, ffn, 1, nullptr);
    Matrix<T> grad_gate_up(1, 2 * ffn, 1, nullptr);
    Matrix<T> same_out(1, ffn, 1, nullptr);
    kernels.activation({}).forward(gate_up.values.data(), 0.75, ffn, out.values.data(), {});
    const double grad_weight =
        kernels.activation({}).backward(gate_up.values.data(), 0.75, grad.values.data(), ffn,
                                        grad_gate_up.values.data(), same_out.values.data(), {});
    double expected_grad_weight = 0;
    for (int64_t i = 0; i < ffn; ++i) {
      const double gate = widen(gate_up.at(0, i));
      const double up = widen(gate_up.at(0, ffn + i));
      const double grad_out = widen(grad.at(0, i));
      const double sigmoid = 1 / (1 + std::exp(-gate));
      const double silu = gate * sigmoid;
      const double grad_silu = sigmoid * (1 + gate * (1 - sigmoid));
      EXPECT_NEAR(widen(out.at(0, i)), silu * up * 0.75, 4 * tolerance<T>());
      EXPECT_EQ(widen(same_out.at(0, i)), widen(out.at(0, i)));
      EXPECT_NEAR(widen(grad_gate_up.at(0, i)), grad_out * 0.75 * up * grad_silu,
                  8 * tolerance<T>());
      EXPECT_NEAR(widen(grad_gate_up.at(0, ffn + i)), grad_out * 0.75 * silu, 8 * tolerance<T>());
      expected_grad_weight += grad_out * silu * up;
    }
    EXPECT_NEAR(grad_weight, expected_grad_weight, sizeof(T) == 8 ? 1e-13 : 1e-4);
    EXPECT_TRUE(std::isnan(widen(out.at(0, ffn)))) << "wrote outside";
    EXPECT_TRUE(std::isnan(widen(grad_gate_up.at(0, 2 * ffn)))) << "wrote outside";
  }
}

// Every activation, on every instruction set, against a difference of itself.
template <class T>
void expect_slopes(const TypedKernels<T>& kernels) {
  const RandomStream random(3, "slopes");
  constexpr int64_t kFfn = 37;
  for (int which = 0; which < kNumActivations; ++which) {
    const MlpFunction function{static_cast<Activation>(which), false};
    const ActivationKernels<T>& activation = kernels.activation(function);
    Matrix<T> input(1, kFfn, 1, &random);
    Matrix<T> above(1, kFfn, 1, nullptr);
    Matrix<T> below(1, kFfn, 1, nullptr);
    Matrix<T> ones(1, kFfn, 1, nullptr);
    Matrix<T> slope(1, kFfn, 1, nullptr);
    Matrix<T> value(1, kFfn, 1, nullptr);
    constexpr double kStep = sizeof(T) == 8 ? 1e-6 : 1e-2;
    Matrix<T> shifted(1, kFfn, 1, nullptr);
    for (const double direction : {1.0, -1.0}) {
      for (int64_t i = 0; i < kFfn; ++i) {
        shifted.values[static_cast<size_t>(i)] =
            static_cast<T>(widen(input.at(0, i)) + direction * kStep);
        ones.values[static_cast<size_t>(i)] = T{1};
      }
      Matrix<T>& out = direction > 0 ? above : below;
      activation.forward(shifted.values.data(), 1, kFfn, out.values.data(), {});
    }
    const double grad_weight = activation.backward(input.values.data(), 1, ones.values.data(), kFfn,
                                                   slope.values.data(), value.values.data(), {});
    double sum = 0;
    for (int64_t i = 0; i < kFfn; ++i) {
      const double expected = (widen(above.at(0, i)) - widen(below.at(0, i))) / (2 * kStep);
      if (std::abs(widen(input.at(0, i))) > kStep) {  // away from relu's corner
        EXPECT_NEAR(widen(slope.at(0, i)), expected, sizeof(T) == 8 ? 1e-8 : 1e-3)
            << which << " at " << input.at(0, i);
      }
      sum += widen(value.at(0, i));
    }
    EXPECT_NEAR(grad_weight, sum, sizeof(T) == 8 ? 1e-12 : 1e-4);
    EXPECT_TRUE(std::isnan(slope.at(0, kFfn))) << "wrote outside";
  }
}

TEST_P(CpuKernels, ComputeEveryActivationAndItsSlope) {
  expect_slopes(kernels_->fp64);
  expect_slopes(kernels_->fp32);
}

TEST_P(CpuKernels, ComputeGatedSiluAndItsGradients) {
  expect_gated_silu(kernels_->fp64);
  expect_gated_silu(kernels_->fp32);
  expect_gated_silu(kernels_->bf16);
}

TEST_P(CpuKernels, RoundToTheNearestBf16TiesToEven) {
  // 1 + 2^-8 and 1 + 3 x 2^-8 lie half way between bf16 numbers; 1 + 2^-8 + 2^-16 lies above.
  const std::vector<std::pair<std::vector<double>, double>> cases = {
      {{1, std::ldexp(1, -8)}, 1},
      {{1, 3 * std::ldexp(1, -8)}, 1 + std::ldexp(1, -6)},
      {{1, std::ldexp(1, -8) + std::ldexp(1, -15)}, 1 + std::ldexp(1, -7)},
      {{-1, -std::ldexp(1, -8)}, -1},
  };
  for (const auto& [terms, expected] : cases) {
    std::vector<Bf16Bits> rows;
    for (const double term : terms) {
      rows.push_back(narrow<Bf16Bits>(term));
      ASSERT_EQ(widen(rows.back()), term);
    }
    const std::vector<int64_t> row_of_slot = {0, -1, 1};
    Bf16Bits sum{};
    kernels_->bf16.sum_rows(rows.data(), row_of_slot.data(), 3, 1, &sum);
    EXPECT_EQ(widen(sum), expected);
  }
}

INSTANTIATE_TEST_SUITE_P(Isa, CpuKernels,
                         testing::Values(CpuIsa::kBaseline, CpuIsa::kAvx2, CpuIsa::kAvx512,
                                         CpuIsa::kAvx512Bf16, CpuIsa::kAmx),
                         [](const auto& instance) {
                           switch (instance.param) {
                             case CpuIsa::kBaseline:
                               return "baseline";
                             case CpuIsa::kAvx2:
                               return "avx2";
                             case CpuIsa::kAvx512:
                               return "avx512";
                             case CpuIsa::kAvx512Bf16:
                               return "avx512_bf16";
                             case CpuIsa::kAmx:
                               return "amx";
                           }
                           return "";
                         });

TEST(CpuKernelChoice, TakesOneThatThisMachineHas) {
  bool is_known = false;
  for (const CpuIsa isa :
       {CpuIsa::kBaseline, CpuIsa::kAvx2, CpuIsa::kAvx512, CpuIsa::kAvx512Bf16, CpuIsa::kAmx}) {
    is_known = is_known || cpu_kernels_for(isa) == &cpu_kernels();
  }
  EXPECT_TRUE(is_known);
}

}  // namespace
}  // namespace switchyard
