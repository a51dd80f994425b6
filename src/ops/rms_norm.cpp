#include "ops/rms_norm.h"

#include <algorithm>
#include <cmath>

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <torch/csrc/autograd/custom_function.h>

#include "base/error.h"
#include "base/shape.h"
#include "ops/float_types.h"
#include "ops/lanes.h"

namespace switchyard {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// Enough elements to be worth waking another thread.
constexpr int64_t kElementsPerTask = 16384;

// Rows whose weight gradients are added one after the other; fixed, so that the order of the sum
// does not depend on the number of threads.
constexpr int64_t kRowsPerBlock = 64;

template <class T>
struct NormRows {
  const T* x;
  const T* residual;  // null: none
  const T* weight;
  Accumulator<T> epsilon;
  bool is_plus_one;
  int64_t hidden;
  T* sum;  // null without residual
  T* normed;
  Accumulator<T>* inverse_rms;
};

template <class T>
SWITCHYARD_INLINE void norm_rows_body(const NormRows<T>& args, int64_t begin, int64_t end) {
  using A = Accumulator<T>;
  const int64_t hidden = args.hidden;
  const T* weight = args.weight;
  for (int64_t row = begin; row < end; ++row) {
    const T* x = args.x + row * hidden;
    if (args.residual != nullptr) {
      const T* residual = args.residual + row * hidden;
      T* sum = args.sum + row * hidden;
#pragma omp simd
      for (int64_t i = 0; i < hidden; ++i) {
        narrow(widen(x[i]) + widen(residual[i]), sum[i]);
      }
      x = sum;
    }
    const A squares = lane_sum<A>(
        hidden, [x](int64_t i)
                    __attribute__((always_inline)) { return widen(x[i]) * widen(x[i]); });
    const A inverse = 1 / std::sqrt(squares / static_cast<A>(hidden) + args.epsilon);
    args.inverse_rms[row] = inverse;
    T* normed = args.normed + row * hidden;
    if (args.is_plus_one) {
#pragma omp simd
      for (int64_t i = 0; i < hidden; ++i) {
        narrow(widen(x[i]) * inverse * (1 + widen(weight[i])), normed[i]);
      }
      continue;
    }
#pragma omp simd
    for (int64_t i = 0; i < hidden; ++i) {
      T unit;
      narrow(widen(x[i]) * inverse, unit);
      narrow(widen(unit) * widen(weight[i]), normed[i]);
    }
  }
}

SWITCHYARD_VECTOR_CLONES void norm_rows(const NormRows<double>& args, int64_t begin, int64_t end) {
  norm_rows_body(args, begin, end);
}
SWITCHYARD_VECTOR_CLONES void norm_rows(const NormRows<float>& args, int64_t begin, int64_t end) {
  norm_rows_body(args, begin, end);
}
SWITCHYARD_VECTOR_CLONES void norm_rows(const NormRows<at::BFloat16>& args, int64_t begin,
                                        int64_t end) {
  norm_rows_body(args, begin, end);
}

template <class T>
struct NormGradRows {
  const T* x;
  const T* weight;
  const Accumulator<T>* inverse_rms;
  const T* grad_normed;
  const T* grad_sum;  // null: none
  bool is_plus_one;
  int64_t hidden;
  T* grad_x;
};

// Writes the gradient of x and adds the rows' part of the weight gradient to grad_weight [hidden].
template <class T>
SWITCHYARD_INLINE void norm_grad_rows_body(const NormGradRows<T>& args, int64_t begin, int64_t end,
                                           Accumulator<T>* grad_weight) {
  using A = Accumulator<T>;
  const int64_t hidden = args.hidden;
  const T* weight = args.weight;
  const A one = args.is_plus_one ? A{1} : A{0};
  for (int64_t row = begin; row < end; ++row) {
    const T* x = args.x + row * hidden;
    const T* grad = args.grad_normed + row * hidden;
    const A inverse = args.inverse_rms[row];
    const A dot = lane_sum<A>(
        hidden, [=](int64_t i) __attribute__((always_inline)) {
          return widen(grad[i]) * (widen(weight[i]) + one) * widen(x[i]);
        });
    // d(x_i / rms) = (d_i - x_i * mean(d * x) / rms^2) / rms
    const A scale = dot / static_cast<A>(hidden) * inverse * inverse;
    T* grad_x = args.grad_x + row * hidden;
    if (args.is_plus_one) {
#pragma omp simd
      for (int64_t i = 0; i < hidden; ++i) {
        const A value = widen(x[i]);
        grad_weight[i] += widen(grad[i]) * value * inverse;
        narrow((widen(grad[i]) * (1 + widen(weight[i])) - value * scale) * inverse, grad_x[i]);
      }
    } else if (args.grad_sum == nullptr) {
#pragma omp simd
      for (int64_t i = 0; i < hidden; ++i) {
        const A value = widen(x[i]);
        T unit;
        narrow(value * inverse, unit);
        grad_weight[i] += widen(grad[i]) * widen(unit);
        narrow((widen(grad[i]) * widen(weight[i]) - value * scale) * inverse, grad_x[i]);
      }
    } else {
      const T* grad_sum = args.grad_sum + row * hidden;
#pragma omp simd
      for (int64_t i = 0; i < hidden; ++i) {
        const A value = widen(x[i]);
        T unit;
        narrow(value * inverse, unit);
        grad_weight[i] += widen(grad[i]) * widen(unit);
        narrow(widen(grad_sum[i]) + (widen(grad[i]) * widen(weight[i]) - value * scale) * inverse,
               grad_x[i]);
      }
    }
  }
}

SWITCHYARD_VECTOR_CLONES void norm_grad_rows(const NormGradRows<double>& args, int64_t begin,
                                             int64_t end, double* grad_weight) {
  norm_grad_rows_body(args, begin, end, grad_weight);
}
SWITCHYARD_VECTOR_CLONES void norm_grad_rows(const NormGradRows<float>& args, int64_t begin,
                                             int64_t end, float* grad_weight) {
  norm_grad_rows_body(args, begin, end, grad_weight);
}
SWITCHYARD_VECTOR_CLONES void norm_grad_rows(const NormGradRows<at::BFloat16>& args, int64_t begin,
                                             int64_t end, float* grad_weight) {
  norm_grad_rows_body(args, begin, end, grad_weight);
}

struct NormForward {
  at::Tensor sum;  // undefined without residual
  at::Tensor normed;
  at::Tensor inverse_rms;  // [rows]
};

NormForward norm_forward(const at::Tensor& x, const at::Tensor& residual, const at::Tensor& weight,
                         double epsilon, NormWeight kind) {
  const int64_t hidden = weight.size(0);
  const int64_t rows = x.numel() / hidden;
  NormForward out;
  out.normed = at::empty_like(x);
  out.inverse_rms = at::empty({rows}, x.options().dtype(accumulator_type(x.scalar_type())));
  if (residual.defined()) {
    out.sum = at::empty_like(x);
  }
  visit_float_type(x.scalar_type(), [&](auto type) {
    using T = decltype(type);
    using A = Accumulator<T>;
    const NormRows<T> args{x.const_data_ptr<T>(),
                           residual.defined() ? residual.const_data_ptr<T>() : nullptr,
                           weight.const_data_ptr<T>(),
                           static_cast<A>(epsilon),
                           kind == NormWeight::kPlusOne,
                           hidden,
                           residual.defined() ? out.sum.mutable_data_ptr<T>() : nullptr,
                           out.normed.mutable_data_ptr<T>(),
                           out.inverse_rms.mutable_data_ptr<A>()};
    at::parallel_for(0, rows, 1 + kElementsPerTask / hidden,
                     [&](int64_t begin, int64_t end) { norm_rows(args, begin, end); });
  });
  return out;
}

struct NormGradients {
  at::Tensor x;
  at::Tensor weight;
};

NormGradients norm_backward(const at::Tensor& x, const at::Tensor& weight,
                            const at::Tensor& inverse_rms, const at::Tensor& grad_normed,
                            const at::Tensor& grad_sum, NormWeight kind) {
  const int64_t hidden = weight.size(0);
  const int64_t rows = inverse_rms.size(0);
  const int64_t blocks = (rows + kRowsPerBlock - 1) / kRowsPerBlock;
  at::Tensor grad_x = at::empty_like(x);
  at::Tensor partial = at::zeros({blocks, hidden}, inverse_rms.options());
  visit_float_type(x.scalar_type(), [&](auto type) {
    using T = decltype(type);
    using A = Accumulator<T>;
    const NormGradRows<T> args{x.const_data_ptr<T>(),
                               weight.const_data_ptr<T>(),
                               inverse_rms.const_data_ptr<A>(),
                               grad_normed.const_data_ptr<T>(),
                               grad_sum.defined() ? grad_sum.const_data_ptr<T>() : nullptr,
                               kind == NormWeight::kPlusOne,
                               hidden,
                               grad_x.mutable_data_ptr<T>()};
    auto* sums = partial.mutable_data_ptr<A>();
    at::parallel_for(0, blocks, 1 + kElementsPerTask / (hidden * kRowsPerBlock),
                     [&](int64_t begin, int64_t end) {
                       for (int64_t block = begin; block < end; ++block) {
                         norm_grad_rows(args, block * kRowsPerBlock,
                                        std::min(rows, (block + 1) * kRowsPerBlock),
                                        sums + block * hidden);
                       }
                     });
    // The blocks in rising order, onto the first.
    for (int64_t block = 1; block < blocks; ++block) {
      for (int64_t i = 0; i < hidden; ++i) {
        sums[i] += sums[block * hidden + i];
      }
    }
  });
  const at::Tensor grad_weight =
      blocks == 0 ? at::zeros({hidden}, inverse_rms.options()) : partial.select(0, 0);
  return {grad_x, grad_weight.to(weight.scalar_type(), /*non_blocking=*/false, /*copy=*/true)};
}

struct RmsNorm : torch::autograd::Function<RmsNorm> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& x, const at::Tensor& weight,
                            double epsilon, NormWeight kind) {
    const NormForward out = norm_forward(x, {}, weight, epsilon, kind);
    ctx->save_for_backward({x, weight, out.inverse_rms});
    ctx->saved_data["kind"] = static_cast<int64_t>(kind);
    return out.normed;
  }

  static variable_list backward(AutogradContext* ctx, const variable_list& grads) {
    const variable_list saved = ctx->get_saved_variables();
    const auto kind = static_cast<NormWeight>(ctx->saved_data["kind"].toInt());
    const NormGradients grad =
        norm_backward(saved[0], saved[1], saved[2], grads[0].contiguous(), {}, kind);
    return {grad.x, grad.weight, {}, {}};
  }
};

struct AddRmsNorm : torch::autograd::Function<AddRmsNorm> {
  static variable_list forward(AutogradContext* ctx, const at::Tensor& x,
                               const at::Tensor& residual, const at::Tensor& weight,
                               double epsilon) {
    const NormForward out = norm_forward(x, residual, weight, epsilon, NormWeight::kPlain);
    ctx->set_materialize_grads(false);
    ctx->save_for_backward({out.sum, weight, out.inverse_rms});
    return {out.sum, out.normed};
  }

  static variable_list backward(AutogradContext* ctx, const variable_list& grads) {
    if (!grads[1].defined()) {
      return {grads[0], grads[0], {}, {}};
    }
    const variable_list saved = ctx->get_saved_variables();
    const at::Tensor grad_sum = grads[0].defined() ? grads[0].contiguous() : at::Tensor();
    const NormGradients grad = norm_backward(saved[0], saved[1], saved[2], grads[1].contiguous(),
                                             grad_sum, NormWeight::kPlain);
    return {grad.x, grad.x, grad.weight, {}};
  }
};

void check_norm_inputs(const char* op, const at::Tensor& x, const at::Tensor& weight) {
  check_float_cpu(fmt::format("{}: x", op), x);
  check<ShapeError>(x.dim() >= 1, "{}: x must have at least one dim, got []", op);
  check_shape(fmt::format("{}: weight", op), weight, {x.size(-1)});
  check<ShapeError>(x.size(-1) > 0, "{}: x must have a hidden size above 0", op);
  check<ShapeError>(weight.scalar_type() == x.scalar_type(), "{}: weight is {}, but x is {}", op,
                    c10::toString(weight.scalar_type()), c10::toString(x.scalar_type()));
}

}  // namespace

at::Tensor rms_norm(const at::Tensor& x, const at::Tensor& weight, double epsilon,
                    NormWeight kind) {
  check_norm_inputs("rms_norm", x, weight);
  return RmsNorm::apply(x.contiguous(), weight.contiguous(), epsilon, kind);
}

AddRmsNormOutput add_rms_norm(const at::Tensor& x, const at::Tensor& residual,
                              const at::Tensor& weight, double epsilon) {
  check_norm_inputs("add_rms_norm", x, weight);
  check<ShapeError>(residual.sizes() == x.sizes() && residual.scalar_type() == x.scalar_type(),
                    "add_rms_norm: residual must have the sizes and dtype of x");
  const variable_list out =
      AddRmsNorm::apply(x.contiguous(), residual.contiguous(), weight.contiguous(), epsilon);
  return {out[0], out[1]};
}

}  // namespace switchyard
