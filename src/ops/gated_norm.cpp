#include "ops/gated_norm.h"

#include <algorithm>
#include <cmath>

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>

#include "base/error.h"
#include "base/shape.h"
#include "ops/float_types.h"
#include "ops/lanes.h"
#include "ops/parallel_tasks.h"

namespace switchyard {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// Rows of one task, whose weight gradients are added one after the other; fixed, so that the order
// of the sum does not depend on the number of threads.
constexpr int64_t kRowsPerBlock = 64;

template <class T>
struct GatedNormArrays {
  const T* x;
  const T* gate;
  const T* weight;
  double epsilon;
  int64_t width;
  int64_t group_size;
  bool gate_first;
};

template <class A>
SWITCHYARD_INLINE A sigmoid(A value) {
  return 1 / (1 + vector_exp(-value));
}

// What the norm of one group is taken of.
template <class T>
SWITCHYARD_INLINE Accumulator<T> normed_value(const GatedNormArrays<T>& args, const T* x,
                                              const T* gate, int64_t i) {
  const auto value = widen(x[i]);
  if (!args.gate_first) {
    return value;
  }
  const auto z = widen(gate[i]);
  return value * z * sigmoid(z);
}

template <class T>
SWITCHYARD_INLINE void gated_norm_rows_body(const GatedNormArrays<T>& args, int64_t begin,
                                            int64_t end, T* out, Accumulator<T>* inverse_rms) {
  using A = Accumulator<T>;
  const int64_t size = args.group_size;
  const int64_t groups = args.width / size;
  for (int64_t group = begin * groups; group < end * groups; ++group) {
    const T* x = args.x + group * size;
    const T* gate = args.gate + group * size;
    const T* weight = args.weight + group % groups * size;
    const A squares = lane_sum<A>(
        size, [&](int64_t i) __attribute__((always_inline)) {
          const A value = normed_value(args, x, gate, i);
          return value * value;
        });
    const A inverse = 1 / std::sqrt(squares / static_cast<A>(size) + static_cast<A>(args.epsilon));
    inverse_rms[group] = inverse;
    T* to = out + group * size;
    if (args.gate_first) {
#pragma omp simd
      for (int64_t i = 0; i < size; ++i) {
        const A z = widen(gate[i]);
        narrow(widen(x[i]) * z * sigmoid(z) * inverse * widen(weight[i]), to[i]);
      }
    } else {
#pragma omp simd
      for (int64_t i = 0; i < size; ++i) {
        const A z = widen(gate[i]);
        narrow(widen(x[i]) * inverse * widen(weight[i]) * z * sigmoid(z), to[i]);
      }
    }
  }
}

SWITCHYARD_VECTOR_CLONES void gated_norm_rows(const GatedNormArrays<double>& args, int64_t begin,
                                              int64_t end, double* out, double* inverse_rms) {
  gated_norm_rows_body(args, begin, end, out, inverse_rms);
}
SWITCHYARD_VECTOR_CLONES void gated_norm_rows(const GatedNormArrays<float>& args, int64_t begin,
                                              int64_t end, float* out, float* inverse_rms) {
  gated_norm_rows_body(args, begin, end, out, inverse_rms);
}
SWITCHYARD_VECTOR_CLONES void gated_norm_rows(const GatedNormArrays<at::BFloat16>& args,
                                              int64_t begin, int64_t end, at::BFloat16* out,
                                              float* inverse_rms) {
  gated_norm_rows_body(args, begin, end, out, inverse_rms);
}

template <class T>
struct GatedNormGradArrays {
  const T* grad_out;
  const Accumulator<T>* inverse_rms;
  T* grad_x;
  T* grad_gate;
};

// With u = x silu(z), or x when the norm comes first, n = u / rms and d the gradient of n:
//   the gradient of u is (d - n mean(d n)) / rms.
template <class T>
SWITCHYARD_INLINE void gated_norm_grad_rows_body(const GatedNormArrays<T>& args,
                                                 const GatedNormGradArrays<T>& grads, int64_t begin,
                                                 int64_t end, Accumulator<T>* grad_weight) {
  using A = Accumulator<T>;
  const int64_t size = args.group_size;
  const int64_t groups = args.width / size;
  for (int64_t group = begin * groups; group < end * groups; ++group) {
    const T* x = args.x + group * size;
    const T* gate = args.gate + group * size;
    const T* grad = grads.grad_out + group * size;
    const T* weight = args.weight + group % groups * size;
    A* weight_sum = grad_weight + group % groups * size;
    T* grad_x = grads.grad_x + group * size;
    T* grad_gate = grads.grad_gate + group * size;
    const A inverse = grads.inverse_rms[group];
    const A dot = lane_sum<A>(
        size, [&](int64_t i) __attribute__((always_inline)) {
          const A d = widen(grad[i]) * widen(weight[i]);
          const A z = widen(gate[i]);
          return d * widen(x[i]) * z * sigmoid(z);
        });
    // mean(d n) / rms: u silu(...) enters `dot` once either way.
    const A scale = dot / static_cast<A>(size) * inverse * inverse;
    if (args.gate_first) {
#pragma omp simd
      for (int64_t i = 0; i < size; ++i) {
        const A z = widen(gate[i]);
        const A s = sigmoid(z);
        const A value = widen(x[i]);
        const A u = value * z * s;
        const A grad_u = (widen(grad[i]) * widen(weight[i]) - u * scale) * inverse;
        weight_sum[i] += widen(grad[i]) * u * inverse;
        narrow(grad_u * z * s, grad_x[i]);
        narrow(grad_u * value * s * (1 + z * (1 - s)), grad_gate[i]);
      }
    } else {
#pragma omp simd
      for (int64_t i = 0; i < size; ++i) {
        const A z = widen(gate[i]);
        const A s = sigmoid(z);
        const A n = widen(x[i]) * inverse;
        const A d = widen(grad[i]) * z * s;
        weight_sum[i] += d * n;
        narrow((d * widen(weight[i]) - widen(x[i]) * scale) * inverse, grad_x[i]);
        narrow(widen(grad[i]) * n * widen(weight[i]) * s * (1 + z * (1 - s)), grad_gate[i]);
      }
    }
  }
}

SWITCHYARD_VECTOR_CLONES void gated_norm_grad_rows(const GatedNormArrays<double>& args,
                                                   const GatedNormGradArrays<double>& grads,
                                                   int64_t begin, int64_t end,
                                                   double* grad_weight) {
  gated_norm_grad_rows_body(args, grads, begin, end, grad_weight);
}
SWITCHYARD_VECTOR_CLONES void gated_norm_grad_rows(const GatedNormArrays<float>& args,
                                                   const GatedNormGradArrays<float>& grads,
                                                   int64_t begin, int64_t end, float* grad_weight) {
  gated_norm_grad_rows_body(args, grads, begin, end, grad_weight);
}
SWITCHYARD_VECTOR_CLONES void gated_norm_grad_rows(const GatedNormArrays<at::BFloat16>& args,
                                                   const GatedNormGradArrays<at::BFloat16>& grads,
                                                   int64_t begin, int64_t end, float* grad_weight) {
  gated_norm_grad_rows_body(args, grads, begin, end, grad_weight);
}

int64_t num_blocks(int64_t rows) {
  return (rows + kRowsPerBlock - 1) / kRowsPerBlock;
}

struct GatedNorm : torch::autograd::Function<GatedNorm> {
  template <class T>
  static GatedNormArrays<T> arrays(const at::Tensor& x, const at::Tensor& gate,
                                   const at::Tensor& weight, double epsilon, int64_t group_size,
                                   bool gate_first) {
    return {x.const_data_ptr<T>(),
            gate.const_data_ptr<T>(),
            weight.const_data_ptr<T>(),
            epsilon,
            weight.size(0),
            group_size,
            gate_first};
  }

  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& x, const at::Tensor& gate,
                            const at::Tensor& weight, double epsilon, int64_t group_size,
                            bool gate_first) {
    const int64_t rows = x.numel() / weight.size(0);
    at::Tensor out = at::empty_like(x);
    at::Tensor inverse_rms = at::empty({rows, weight.size(0) / group_size},
                                       x.options().dtype(accumulator_type(x.scalar_type())));
    visit_float_type(x.scalar_type(), [&](auto type) {
      using T = decltype(type);
      const auto args = arrays<T>(x, gate, weight, epsilon, group_size, gate_first);
      T* to = out.mutable_data_ptr<T>();
      auto* inverse = inverse_rms.mutable_data_ptr<Accumulator<T>>();
      run_tasks(num_blocks(rows), [&](int64_t block) {
        gated_norm_rows(args, block * kRowsPerBlock, std::min(rows, (block + 1) * kRowsPerBlock),
                        to, inverse);
      });
    });
    ctx->save_for_backward({x, gate, weight, inverse_rms});
    ctx->saved_data["epsilon"] = epsilon;
    ctx->saved_data["group_size"] = group_size;
    ctx->saved_data["gate_first"] = gate_first;
    return out;
  }

  static variable_list backward(AutogradContext* ctx, const variable_list& grads) {
    const variable_list saved = ctx->get_saved_variables();
    const at::Tensor& x = saved[0];
    const at::Tensor& weight = saved[2];
    const at::Tensor grad_out = grads[0].contiguous();
    const int64_t rows = x.numel() / weight.size(0);
    at::Tensor grad_x = at::empty_like(x);
    at::Tensor grad_gate = at::empty_like(x);
    at::Tensor partial = at::zeros({num_blocks(rows), weight.size(0)}, saved[3].options());
    visit_float_type(x.scalar_type(), [&](auto type) {
      using T = decltype(type);
      using A = Accumulator<T>;
      const auto args =
          arrays<T>(x, saved[1], weight, ctx->saved_data["epsilon"].toDouble(),
                    ctx->saved_data["group_size"].toInt(), ctx->saved_data["gate_first"].toBool());
      const GatedNormGradArrays<T> gradients{
          grad_out.const_data_ptr<T>(), saved[3].const_data_ptr<A>(), grad_x.mutable_data_ptr<T>(),
          grad_gate.mutable_data_ptr<T>()};
      A* sums = partial.mutable_data_ptr<A>();
      run_tasks(num_blocks(rows), [&](int64_t block) {
        gated_norm_grad_rows(args, gradients, block * kRowsPerBlock,
                             std::min(rows, (block + 1) * kRowsPerBlock),
                             sums + block * weight.size(0));
      });
    });
    // The blocks in rising order.
    at::Tensor grad_weight = at::zeros({weight.size(0)}, saved[3].options());
    for (int64_t block = 0; block < num_blocks(rows); ++block) {
      grad_weight.add_(partial.select(0, block));
    }
    return {grad_x, grad_gate, grad_weight.to(weight.scalar_type()), {}, {}, {}};
  }
};

}  // namespace

at::Tensor gated_norm(const at::Tensor& x, const at::Tensor& gate, const at::Tensor& weight,
                      double epsilon, int64_t group_size, GateOrder order) {
  check_float_cpu("gated_norm: x", x);
  check<ShapeError>(x.dim() >= 1 && x.size(-1) > 0,
                    "gated_norm: x must have features in its last dim");
  check_shape("gated_norm: weight", weight, {x.size(-1)});
  check<ShapeError>(gate.sizes() == x.sizes(), "gated_norm: the gate must have the sizes of x");
  check<ShapeError>(
      gate.scalar_type() == x.scalar_type() && weight.scalar_type() == x.scalar_type(),
      "gated_norm: x is {}, the gate {} and weight {}; they must have one dtype",
      c10::toString(x.scalar_type()), c10::toString(gate.scalar_type()),
      c10::toString(weight.scalar_type()));
  check<ShapeError>(group_size > 0 && x.size(-1) % group_size == 0,
                    "gated_norm: groups of {} features do not divide a width of {}", group_size,
                    x.size(-1));
  return GatedNorm::apply(x.contiguous(), gate.contiguous(), weight.contiguous(), epsilon,
                          group_size, order == GateOrder::kGateThenNorm);
}

}  // namespace switchyard
