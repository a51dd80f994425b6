#include "ops/activation.h"

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
#include "ops/saved_function.h"

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

struct WeightedActivation : torch::autograd::Function<WeightedActivation> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& input,
                            const std::optional<at::Tensor>& given_weights,
                            const MlpFunction& function) {
    const at::Tensor weights = given_weights.value_or(at::Tensor());
    ctx->save_for_backward({input, weights});
    save_function(ctx, function);
    const int64_t rows = input.size(0);
    const int64_t ffn = input.size(1) / function.num_inputs();
    at::Tensor out = at::empty({rows, ffn}, input.options());
    const RowWeights row_weights(weights);
    visit_kernels(input.scalar_type(), [&](const auto& kernels) {
      using T = Value<decltype(kernels)>;
      const auto activate = kernels.activation(function).forward;
      const T* in = values_of<T>(input);
      T* to = mutable_values_of<T>(out);
      for_rows(rows, ffn, [&](int64_t row) {
        activate(in + row * input.size(1), row_weights[row], ffn, to + row * ffn, function);
      });
    });
    return out;
  }

  static variable_list backward(AutogradContext* ctx, const variable_list& grads) {
    const variable_list saved = ctx->get_saved_variables();
    const at::Tensor& input = saved[0];
    const at::Tensor& weights = saved[1];
    const MlpFunction function = saved_function(ctx);
    const at::Tensor grad = grads[0].contiguous();
    const int64_t rows = input.size(0);
    const int64_t width = input.size(1);
    const int64_t ffn = width / function.num_inputs();
    at::Tensor grad_input = at::empty_like(input);
    const at::Tensor grad_weights = weights.defined() ? at::empty_like(weights) : at::Tensor();
    const RowWeights row_weights(weights);
    RowWeights row_weight_gradients(grad_weights);
    visit_kernels(input.scalar_type(), [&](const auto& kernels) {
      using T = Value<decltype(kernels)>;
      const auto activate_backward = kernels.activation(function).backward;
      const T* in = values_of<T>(input);
      const T* grad_out = values_of<T>(grad);
      T* to = mutable_values_of<T>(grad_input);
      for_rows(rows, ffn, [&](int64_t row) {
        const double grad_weight =
            activate_backward(in + row * width, row_weights[row], grad_out + row * ffn, ffn,
                              to + row * width, nullptr, function);
        row_weight_gradients.set(row, grad_weight);
      });
    });
    return {grad_input, grad_weights, at::Tensor()};
  }
};

}  // namespace

void check_limits(std::string_view op, const MlpFunction& function) {
  check<ShapeError>(function.is_gated || !function.has_limits(),
                    "{}: a function without a gate has neither clamp nor offset", op);
}

at::Tensor weighted_activation(const at::Tensor& input, const at::Tensor& weights,
                               const MlpFunction& function) {
  check_float_cpu("weighted_activation: input", input);
  check_shape("weighted_activation: input", input, {kAnySize, kAnySize});
  check_limits("weighted_activation", function);
  check<ShapeError>(input.size(1) % function.num_inputs() == 0,
                    "weighted_activation: input holds gate and up, so that its columns must be "
                    "even, got {}",
                    input.size(1));
  if (!weights.defined()) {
    return WeightedActivation::apply(input.contiguous(), std::nullopt, function);
  }
  check_row_weights("weighted_activation: weights", weights, input.size(0));
  return WeightedActivation::apply(input.contiguous(), std::optional(weights.contiguous()),
                                   function);
}

}  // namespace switchyard
