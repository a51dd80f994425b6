#include "ops/peak_speed.h"

#include <algorithm>
#include <chrono>

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

namespace switchyard {

double measure_peak_tflops(at::ScalarType dtype) {
  using Clock = std::chrono::steady_clock;
  using Seconds = std::chrono::duration<double>;
  constexpr int64_t kRows = 1024;
  constexpr double kFlops = 2.0 * kRows * kRows * kRows;
  constexpr Seconds kLongEnough(0.05);
  const at::NoGradGuard no_grad;
  const at::Tensor left = at::full({kRows, kRows}, 0.5, dtype);
  const at::Tensor right = at::full({kRows, kRows}, 0.25, dtype);
  at::Tensor result = at::matmul(left, right);  // warms up
  Seconds best = Seconds::max();
  Seconds total(0);
  while (total < kLongEnough) {
    const auto start = Clock::now();
    at::matmul_out(result, left, right);
    const Seconds seconds = Clock::now() - start;
    best = std::min(best, seconds);
    total += seconds;
  }
  return kFlops * 1e-12 / best.count();
}

}  // namespace switchyard
