#include "ops/swiglu.h"

#include <algorithm>
#include <optional>
#include <cmath>

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <torch/csrc/autograd/custom_function.h>

#include "base/error.h"
#include "base/shape.h"
#include "ops/float_types.h"

namespace switchyard {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// Enough elements to be worth waking another thread.
constexpr int64_t kElementsPerTask = 8192;

template <class T, class Weight>
void swiglu_row(const T* gate_up, Weight weight, int64_t ffn, T* out) {
  using A = Accumulator<T>;
  for (int64_t i = 0; i < ffn; ++i) {
    const auto gate = static_cast<A>(gate_up[i]);
    const auto up = static_cast<A>(gate_up[ffn + i]);
    out[i] = static_cast<T>(gate / (1 + std::exp(-gate)) * up * static_cast<A>(weight));
  }
}

// Writes the gradient of gate_up and returns that of the weight.
template <class T, class Weight>
Accumulator<T> swiglu_row_backward(const T* gate_up, Weight weight, const T* grad, int64_t ffn,
                                   T* grad_gate_up) {
  using A = Accumulator<T>;
  A weight_sum = 0;
  for (int64_t i = 0; i < ffn; ++i) {
    const auto gate = static_cast<A>(gate_up[i]);
    const auto up = static_cast<A>(gate_up[ffn + i]);
    const A sigmoid = 1 / (1 + std::exp(-gate));
    const A silu = gate * sigmoid;
    const auto grad_out = static_cast<A>(grad[i]);
    const A weighted = grad_out * static_cast<A>(weight);
    grad_gate_up[i] = static_cast<T>(weighted * up * (sigmoid + silu * (1 - sigmoid)));
    grad_gate_up[ffn + i] = static_cast<T>(weighted * silu);
    weight_sum += grad_out * silu * up;
  }
  return weight_sum;
}

template <class Visit>
void visit_types(const at::Tensor& gate_up, const at::Tensor& weights, Visit visit) {
  visit_float_type(gate_up.scalar_type(), [&](auto type) {
    if (weights.defined() && weights.scalar_type() == at::kDouble) {
      visit(type, double{});
    } else {
      visit(type, float{});
    }
  });
}

struct WeightedSwiglu : torch::autograd::Function<WeightedSwiglu> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& gate_up,
                            const std::optional<at::Tensor>& given_weights) {
    const at::Tensor weights = given_weights.value_or(at::Tensor());
    ctx->save_for_backward({gate_up, weights});
    const int64_t rows = gate_up.size(0);
    const int64_t ffn = gate_up.size(1) / 2;
    at::Tensor out = at::empty({rows, ffn}, gate_up.options());
    visit_types(gate_up, weights, [&](auto type, auto weight_type) {
      using T = decltype(type);
      using Weight = decltype(weight_type);
      const auto* in = gate_up.const_data_ptr<T>();
      const auto* weight = weights.defined() ? weights.const_data_ptr<Weight>() : nullptr;
      auto* to = out.mutable_data_ptr<T>();
      at::parallel_for(0, rows, 1 + kElementsPerTask / std::max<int64_t>(ffn, 1),
                       [&](int64_t begin, int64_t end) {
                         for (int64_t row = begin; row < end; ++row) {
                           swiglu_row(in + row * 2 * ffn, weight ? weight[row] : Weight{1}, ffn,
                                      to + row * ffn);
                         }
                       });
    });
    return out;
  }

  static variable_list backward(AutogradContext* ctx, const variable_list& grads) {
    const variable_list saved = ctx->get_saved_variables();
    const at::Tensor& gate_up = saved[0];
    const at::Tensor& weights = saved[1];
    const at::Tensor grad = grads[0].contiguous();
    const int64_t rows = gate_up.size(0);
    const int64_t ffn = gate_up.size(1) / 2;
    at::Tensor grad_gate_up = at::empty_like(gate_up);
    at::Tensor grad_weights = weights.defined() ? at::empty_like(weights) : at::Tensor();
    visit_types(gate_up, weights, [&](auto type, auto weight_type) {
      using T = decltype(type);
      using Weight = decltype(weight_type);
      const auto* in = gate_up.const_data_ptr<T>();
      const auto* grad_in = grad.const_data_ptr<T>();
      const auto* weight = weights.defined() ? weights.const_data_ptr<Weight>() : nullptr;
      auto* to = grad_gate_up.mutable_data_ptr<T>();
      auto* to_weight = weight ? grad_weights.mutable_data_ptr<Weight>() : nullptr;
      at::parallel_for(0, rows, 1 + kElementsPerTask / std::max<int64_t>(ffn, 1),
                       [&](int64_t begin, int64_t end) {
                         for (int64_t row = begin; row < end; ++row) {
                           const auto weight_sum = swiglu_row_backward(
                               in + row * 2 * ffn, weight ? weight[row] : Weight{1},
                               grad_in + row * ffn, ffn, to + row * 2 * ffn);
                           if (to_weight != nullptr) {
                             to_weight[row] = static_cast<Weight>(weight_sum);
                           }
                         }
                       });
    });
    return {grad_gate_up, grad_weights};
  }
};

}  // namespace

at::Tensor weighted_swiglu(const at::Tensor& gate_up, const at::Tensor& weights) {
  check_float_cpu("weighted_swiglu: gate_up", gate_up);
  check_shape("weighted_swiglu: gate_up", gate_up, {kAnySize, kAnySize});
  check<ShapeError>(gate_up.size(1) % 2 == 0,
                    "weighted_swiglu: gate_up must have an even number of columns, got {}",
                    gate_up.size(1));
  if (!weights.defined()) {
    return WeightedSwiglu::apply(gate_up.contiguous(), std::nullopt);
  }
  check<ShapeError>(weights.scalar_type() == at::kFloat || weights.scalar_type() == at::kDouble,
                    "weighted_swiglu: weights must be fp32 or fp64, got {}",
                    c10::toString(weights.scalar_type()));
  check_shape("weighted_swiglu: weights", weights, {gate_up.size(0)});
  return WeightedSwiglu::apply(gate_up.contiguous(), std::optional(weights.contiguous()));
}

}  // namespace switchyard
