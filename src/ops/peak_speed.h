#pragma once

#include <ATen/core/Tensor.h>

namespace switchyard {

// The speed of a matrix product that is as easy as can be: the best of several of two square
// matrices of 1024 rows in cache, for at least 50 ms, on this process's threads, in 10^12 floating
// point operations per second. Another program on the same cores makes it less. dtype fp64, fp32 or
// bf16.
double measure_peak_tflops(at::ScalarType dtype);

}  // namespace switchyard
