#pragma once

#include <cstdint>

#include <ATen/core/Tensor.h>

namespace switchyard {

// Whether every value of `from` is one of `to` as well: bf16 and fp16 are in fp32, fp32 is in fp64.
bool holds_every_value_of(at::ScalarType to, at::ScalarType from);

// Converts `count` values, rounding to the nearest, ties to even. fp64, fp32, fp16 and bf16 to any
// of them; other dtypes only to themselves. Throws ShapeError for another pair.
void convert_values(at::ScalarType from_dtype, const void* from, at::ScalarType to_dtype, void* to,
                    int64_t count);

// Whether no value is NaN or infinite. `values`: contiguous, of one of these dtypes; others are
// finite. Takes no memory.
bool is_finite(const at::Tensor& values);

}  // namespace switchyard
