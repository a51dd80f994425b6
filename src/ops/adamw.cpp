#include "ops/adamw.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include "base/error.h"
#include "ops/float_types.h"
#include "ops/lanes.h"

namespace switchyard {
namespace {

// Enough elements to be worth waking another thread.
constexpr int64_t kElementsPerTask = 16384;

constexpr int64_t kElementsPerBlock = 16384;

template <class A>
struct AdamwFactors {
  A gradient_scale;
  A keep;  // 1 - lr * weight_decay
  A one_minus_beta1;
  A beta2;
  A one_minus_beta2;
  A step_size;         // lr / (1 - beta1^step)
  A root_correction2;  // sqrt(1 - beta2^step)
  A epsilon;
};

template <class A>
struct AdamwArrays {
  A* master;
  const A* gradient;
  A* first_moment;
  A* second_moment;
  at::BFloat16* copy;  // null: none
};

template <class A>
SWITCHYARD_INLINE void adamw_body(const AdamwArrays<A>& arrays, const AdamwFactors<A>& factors,
                                  int64_t begin, int64_t end) {
  A* master = arrays.master;
  const A* gradient = arrays.gradient;
  A* first_moment = arrays.first_moment;
  A* second_moment = arrays.second_moment;
  const AdamwFactors<A> f = factors;
#pragma omp simd
  for (int64_t i = begin; i < end; ++i) {
    const A grad = gradient[i] * f.gradient_scale;
    const A first = first_moment[i] + f.one_minus_beta1 * (grad - first_moment[i]);
    const A second = f.beta2 * second_moment[i] + f.one_minus_beta2 * grad * grad;
    const A denominator = std::sqrt(second) / f.root_correction2 + f.epsilon;
    first_moment[i] = first;
    second_moment[i] = second;
    master[i] = master[i] * f.keep - f.step_size * (first / denominator);
  }
  if (arrays.copy != nullptr) {
#pragma omp simd
    for (int64_t i = begin; i < end; ++i) {
      narrow(static_cast<float>(master[i]), arrays.copy[i]);
    }
  }
}

SWITCHYARD_VECTOR_CLONES void adamw_range(const AdamwArrays<double>& arrays,
                                          const AdamwFactors<double>& factors, int64_t begin,
                                          int64_t end) {
  adamw_body(arrays, factors, begin, end);
}
SWITCHYARD_VECTOR_CLONES void adamw_range(const AdamwArrays<float>& arrays,
                                          const AdamwFactors<float>& factors, int64_t begin,
                                          int64_t end) {
  adamw_body(arrays, factors, begin, end);
}

template <class A>
AdamwFactors<A> factors_of(const AdamwOptions& options) {
  const auto step = static_cast<double>(options.step);
  return {static_cast<A>(options.gradient_scale),
          static_cast<A>(1 - options.lr * options.weight_decay),
          static_cast<A>(1 - options.beta1),
          static_cast<A>(options.beta2),
          static_cast<A>(1 - options.beta2),
          static_cast<A>(options.lr / (1 - std::pow(options.beta1, step))),
          static_cast<A>(std::sqrt(1 - std::pow(options.beta2, step))),
          static_cast<A>(options.epsilon)};
}

void check_state(const AdamwState& state, const AdamwOptions& options) {
  const at::ScalarType type = state.master.scalar_type();
  check<ShapeError>(type == at::kFloat || type == at::kDouble,
                    "adamw_step: master must be fp32 or fp64, got {}", c10::toString(type));
  const auto check_one = [&](const char* name, const at::Tensor& tensor, at::ScalarType expected) {
    check<ShapeError>(tensor.scalar_type() == expected, "adamw_step: {} must be {}, got {}", name,
                      c10::toString(expected), c10::toString(tensor.scalar_type()));
    check<ShapeError>(tensor.numel() == state.master.numel() && tensor.is_contiguous(),
                      "adamw_step: {} must be contiguous and have {} elements like master, got {}",
                      name, state.master.numel(), tensor.numel());
  };
  check_one("master", state.master, type);
  check_one("gradient", state.gradient, type);
  check_one("first_moment", state.first_moment, type);
  check_one("second_moment", state.second_moment, type);
  if (state.copy.defined()) {
    check_one("copy", state.copy, at::kBFloat16);
  }
  check<ConfigError>(options.step >= 1, "adamw_step: step ({}) counts from 1", options.step);
}

SWITCHYARD_VECTOR_CLONES double block_squares(const double* values, int64_t n) {
  return lane_sum<double>(
      n, [=](int64_t i) __attribute__((always_inline)) { return values[i] * values[i]; });
}
SWITCHYARD_VECTOR_CLONES double block_squares(const float* values, int64_t n) {
  return lane_sum<double>(
      n, [=](int64_t i) __attribute__((always_inline)) {
        return static_cast<double>(values[i]) * static_cast<double>(values[i]);
      });
}
SWITCHYARD_VECTOR_CLONES double block_squares(const at::BFloat16* values, int64_t n) {
  return lane_sum<double>(
      n, [=](int64_t i) __attribute__((always_inline)) {
        return static_cast<double>(widen(values[i])) * static_cast<double>(widen(values[i]));
      });
}

}  // namespace

void adamw_step(const AdamwState& state, const AdamwOptions& options) {
  check_state(state, options);
  visit_float_type(state.master.scalar_type(), [&](auto type) {
    using A = Accumulator<decltype(type)>;
    const AdamwFactors<A> factors = factors_of<A>(options);
    const AdamwArrays<A> arrays{
        state.master.mutable_data_ptr<A>(), state.gradient.const_data_ptr<A>(),
        state.first_moment.mutable_data_ptr<A>(), state.second_moment.mutable_data_ptr<A>(),
        state.copy.defined() ? state.copy.mutable_data_ptr<at::BFloat16>() : nullptr};
    at::parallel_for(0, state.master.numel(), kElementsPerTask, [&](int64_t begin, int64_t end) {
      // In pieces, so that the weights are still in the cache when their copy is written.
      for (int64_t piece = begin; piece < end; piece += kElementsPerBlock) {
        adamw_range(arrays, factors, piece, std::min(end, piece + kElementsPerBlock));
      }
    });
  });
}

double sum_of_squares(const at::Tensor& tensor) {
  check_float_cpu("sum_of_squares: tensor", tensor);
  const at::Tensor flat = tensor.contiguous();
  const int64_t elements = flat.numel();
  const int64_t blocks = (elements + kElementsPerBlock - 1) / kElementsPerBlock;
  std::vector<double> sums(static_cast<size_t>(blocks));
  visit_float_type(flat.scalar_type(), [&](auto type) {
    const auto* values = flat.const_data_ptr<decltype(type)>();
    at::parallel_for(0, blocks, 1, [&](int64_t begin, int64_t end) {
      for (int64_t block = begin; block < end; ++block) {
        const int64_t first = block * kElementsPerBlock;
        sums[static_cast<size_t>(block)] =
            block_squares(values + first, std::min(kElementsPerBlock, elements - first));
      }
    });
  });
  double total = 0;
  for (const double sum : sums) {
    total += sum;
  }
  return total;
}

}  // namespace switchyard
