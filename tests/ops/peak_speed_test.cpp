#include "ops/peak_speed.h"

#include <gtest/gtest.h>

#include <ATen/Parallel.h>

namespace switchyard {
namespace {

// No processor core of today does less than a tenth of a GFLOP/s or more than a TFLOP/s.
TEST(PeakSpeed, IsThatOfAProcessor) {
  for (const at::ScalarType dtype : {at::kFloat, at::kDouble}) {
    const double peak = measure_peak_tflops(dtype);
    EXPECT_GT(peak, 1e-4);
    EXPECT_LT(peak, at::get_num_threads());
  }
}

}  // namespace
}  // namespace switchyard
