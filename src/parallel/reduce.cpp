#include "parallel/reduce.h"

#include <algorithm>
#include <array>
#include <string_view>
#include <type_traits>

#include <ATen/ATen.h>

#include "base/error.h"

namespace switchyard {
namespace {

// Long enough to vectorize, short enough for the running totals to stay in the first cache.
constexpr int64_t kBlock = 1024;

template <class Value>
constexpr bool kIsHalf = std::is_same_v<Value, at::BFloat16> || std::is_same_v<Value, at::Half>;
template <class Value>
using Wide = std::conditional_t<kIsHalf<Value>, float, Value>;

struct Sum {
  template <class T>
  static T apply(T total, T next) {
    return total + next;
  }
};
struct Max {
  template <class T>
  static T apply(T total, T next) {
    return next > total || next != next ? next : total;
  }
};

template <class Op, class Value>
void reduce(const std::vector<at::Tensor>& pieces, const at::Tensor& out) {
  std::vector<const Value*> inputs;
  for (const at::Tensor& piece : pieces) {
    inputs.push_back(piece.const_data_ptr<Value>());
  }
  auto* result = out.mutable_data_ptr<Value>();
  const int64_t size = out.numel();
  std::array<Wide<Value>, kBlock> totals;
  for (int64_t begin = 0; begin < size; begin += kBlock) {
    const int64_t count = std::min(kBlock, size - begin);
    std::copy_n(inputs[0] + begin, count, totals.begin());
    for (size_t piece = 1; piece < inputs.size(); ++piece) {
      const Value* next = inputs[piece] + begin;
#pragma omp simd
      for (int64_t i = 0; i < count; ++i) {
        auto& total = totals[static_cast<size_t>(i)];
        total = Op::apply(total, static_cast<Wide<Value>>(next[i]));
      }
    }
#pragma omp simd
    for (int64_t i = 0; i < count; ++i) {
      result[begin + i] = static_cast<Value>(totals[static_cast<size_t>(i)]);
    }
  }
}

template <class Op>
void reduce_any(const std::vector<at::Tensor>& pieces, const at::Tensor& out) {
  switch (out.scalar_type()) {
    case at::kDouble:
      return reduce<Op, double>(pieces, out);
    case at::kFloat:
      return reduce<Op, float>(pieces, out);
    case at::kBFloat16:
      return reduce<Op, at::BFloat16>(pieces, out);
    case at::kHalf:
      return reduce<Op, at::Half>(pieces, out);
    case at::kLong:
      return reduce<Op, int64_t>(pieces, out);
    case at::kInt:
      return reduce<Op, int32_t>(pieces, out);
    default:
      throw ShapeError(fmt::format("values of dtype {} cannot be reduced over ranks",
                                   c10::toString(out.scalar_type())));
  }
}

}  // namespace

void reduce_pieces(const std::vector<at::Tensor>& pieces, const at::Tensor& out, ReduceOp op) {
  if (op == ReduceOp::kSum) {
    reduce_any<Sum>(pieces, out);
  } else {
    reduce_any<Max>(pieces, out);
  }
}

}  // namespace switchyard
