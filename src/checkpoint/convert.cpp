#include "checkpoint/convert.h"

#include <cstring>
#include <type_traits>

#include <ATen/ATen.h>

#include "base/error.h"

namespace switchyard {
namespace {

bool is_float(at::ScalarType dtype) {
  return dtype == at::kDouble || dtype == at::kFloat || dtype == at::kHalf ||
         dtype == at::kBFloat16;
}

template <class From, class To>
void convert(const void* from, void* to, int64_t count) {
  const auto* source = static_cast<const From*>(from);
  auto* target = static_cast<To*>(to);
  constexpr bool is_narrow = sizeof(From) == 2 || sizeof(To) == 2;  // these convert by way of fp32
  using Between = std::conditional_t<is_narrow, float, From>;
  for (int64_t i = 0; i < count; ++i) {
    target[i] = static_cast<To>(static_cast<Between>(source[i]));
  }
}

template <class From>
void convert_from(const void* from, at::ScalarType to_dtype, void* to, int64_t count) {
  switch (to_dtype) {
    case at::kDouble:
      return convert<From, double>(from, to, count);
    case at::kFloat:
      return convert<From, float>(from, to, count);
    case at::kHalf:
      return convert<From, at::Half>(from, to, count);
    default:
      return convert<From, at::BFloat16>(from, to, count);
  }
}

// NaN and infinity are the values whose exponent has all bits set.
template <class Bits>
bool has_no_full_exponent(const at::Tensor& values, Bits exponent) {
  const auto* bits = static_cast<const Bits*>(values.const_data_ptr());
  Bits is_full = 0;
  for (int64_t i = 0; i < values.numel(); ++i) {
    is_full = static_cast<Bits>(is_full | ((bits[i] & exponent) == exponent ? 1 : 0));
  }
  return is_full == 0;
}

}  // namespace

bool is_finite(const at::Tensor& values) {
  switch (values.scalar_type()) {
    case at::kDouble:
      return has_no_full_exponent<uint64_t>(values, 0x7ff0000000000000U);
    case at::kFloat:
      return has_no_full_exponent<uint32_t>(values, 0x7f800000U);
    case at::kHalf:
      return has_no_full_exponent<uint16_t>(values, 0x7c00U);
    case at::kBFloat16:
      return has_no_full_exponent<uint16_t>(values, 0x7f80U);
    case at::kFloat8_e4m3fn:  // it has no infinity, and NaN is all bits set but the sign
      return has_no_full_exponent<uint8_t>(values, 0x7fU);
    default:
      return true;
  }
}

bool holds_every_value_of(at::ScalarType to, at::ScalarType from) {
  return to == from || (to == at::kDouble && is_float(from)) ||
         (to == at::kFloat && (from == at::kHalf || from == at::kBFloat16));
}

void convert_values(at::ScalarType from_dtype, const void* from, at::ScalarType to_dtype, void* to,
                    int64_t count) {
  if (from_dtype == to_dtype) {
    std::memcpy(to, from, static_cast<size_t>(count) * c10::elementSize(to_dtype));
    return;
  }
  check<ShapeError>(is_float(from_dtype) && is_float(to_dtype), "{} cannot be converted to {}",
                    c10::toString(from_dtype), c10::toString(to_dtype));
  switch (from_dtype) {
    case at::kDouble:
      return convert_from<double>(from, to_dtype, to, count);
    case at::kFloat:
      return convert_from<float>(from, to_dtype, to, count);
    case at::kHalf:
      return convert_from<at::Half>(from, to_dtype, to, count);
    default:
      return convert_from<at::BFloat16>(from, to_dtype, to, count);
  }
}

}  // namespace switchyard
