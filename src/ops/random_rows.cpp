#include "ops/random_rows.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

namespace switchyard {
namespace {

constexpr int64_t kNumbersPerTask = 4096;

template <class T, class Draw>
void fill(at::Tensor& result, uint64_t first, Draw draw) {
  auto* out = result.mutable_data_ptr<T>();
  at::parallel_for(0, result.numel(), kNumbersPerTask, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      out[i] = static_cast<T>(draw(first + static_cast<uint64_t>(i)));
    }
  });
}

template <class Draw>
at::Tensor rows_of(int64_t first_row, int64_t rows, int64_t columns, at::ScalarType dtype,
                   Draw draw) {
  at::Tensor result = at::empty({rows, columns}, dtype);
  const auto first = static_cast<uint64_t>(first_row) * static_cast<uint64_t>(columns);
  if (dtype == at::kDouble) {
    fill<double>(result, first, draw);
  } else {
    fill<float>(result, first, draw);
  }
  return result;
}

}  // namespace

at::Tensor uniform_rows(const RandomStream& stream, int64_t first_row, int64_t rows,
                        int64_t columns, double low, double high, at::ScalarType dtype) {
  return rows_of(first_row, rows, columns, dtype,
                 [&](uint64_t index) { return low + (high - low) * stream.uniform(index); });
}

at::Tensor normal_rows(const RandomStream& stream, int64_t first_row, int64_t rows, int64_t columns,
                       double std, at::ScalarType dtype) {
  return rows_of(first_row, rows, columns, dtype,
                 [&](uint64_t index) { return std * stream.normal(index); });
}

}  // namespace switchyard
