#include "ops/swiglu.h"

#include <algorithm>
#include <optional>

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <torch/csrc/autograd/custom_function.h>

#include "base/error.h"
#include "base/shape.h"
#include "ops/float_types.h"
#include "ops/kernel_types.h"
#include "ops/row_weights.h"

namespace switchyard {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// Enough elements to be worth waking another thread.
constexpr int64_t kElementsPerTask = 8192;

template <class Work>
void for_rows(int64_t rows, int64_t ffn, Work work) {
  const int64_t grain = 1 + kElementsPerTask / std::max<int64_t>(ffn, 1);
  at::parallel_for(0, rows, grain, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      work(row);
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
    const RowWeights row_weights(weights);
    visit_kernels(gate_up.scalar_type(), [&](const auto& kernels) {
      using T = Value<decltype(kernels)>;
      const T* in = values_of<T>(gate_up);
      T* to = mutable_values_of<T>(out);
      for_rows(rows, ffn, [&](int64_t row) {
        kernels.swiglu(in + row * 2 * ffn, row_weights[row], ffn, to + row * ffn);
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
    const at::Tensor grad_weights = weights.defined() ? at::empty_like(weights) : at::Tensor();
    const RowWeights row_weights(weights);
    RowWeights row_weight_gradients(grad_weights);
    visit_kernels(gate_up.scalar_type(), [&](const auto& kernels) {
      using T = Value<decltype(kernels)>;
      const T* in = values_of<T>(gate_up);
      const T* grad_out = values_of<T>(grad);
      T* to = mutable_values_of<T>(grad_gate_up);
      for_rows(rows, ffn, [&](int64_t row) {
        const double grad_weight =
            kernels.swiglu_backward(in + row * 2 * ffn, row_weights[row], grad_out + row * ffn, ffn,
                                    to + row * 2 * ffn, nullptr);
        row_weight_gradients.set(row, grad_weight);
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
  check_row_weights("weighted_swiglu: weights", weights, gate_up.size(0));
  return WeightedSwiglu::apply(gate_up.contiguous(), std::optional(weights.contiguous()));
}

}  // namespace switchyard
