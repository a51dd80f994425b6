#include "ops/causal_conv.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>

#include "base/error.h"
#include "base/shape.h"
#include "ops/float_types.h"
#include "ops/lanes.h"
#include "ops/parallel_tasks.h"
#include "ops/sequence_chunks.h"

namespace switchyard {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// Tokens of one task; fixed, so that the order of sums does not depend on the number of threads.
constexpr int64_t kTokensPerTask = 64;
constexpr int64_t kChannelsAtOnce = 256;

template <class T>
struct ConvArrays {
  using A = Accumulator<T>;

  const T* x;
  const T* history;  // null: none
  const A* weight;   // [width, channels], the oldest input's first
  const A* bias;     // [channels]; zeros without one
  const T* zeros;    // [channels]
  int64_t width;
  int64_t channels;

  // The inputs of token `token` of a sequence that begins at `start`; of one before it too.
  SWITCHYARD_INLINE const T* row(int64_t token, int64_t start, int64_t sequence) const {
    if (token >= start) {
      return x + token * channels;
    }
    const int64_t kept = width - 1;
    return history == nullptr ? zeros
                              : history + (sequence * kept + kept + token - start) * channels;
  }
};

// Before SiLU: sums[i] of channel first + i.
template <class T>
SWITCHYARD_INLINE void convolve(const ConvArrays<T>& arrays, const SequenceChunk& sequence,
                                int64_t token, int64_t first, int64_t count, Accumulator<T>* sums) {
  const Accumulator<T>* bias = arrays.bias + first;
#pragma omp simd
  for (int64_t i = 0; i < count; ++i) {
    sums[i] = bias[i];
  }
  for (int64_t tap = 0; tap < arrays.width; ++tap) {
    const T* x =
        arrays.row(token - arrays.width + 1 + tap, sequence.begin, sequence.sequence) + first;
    const Accumulator<T>* weight = arrays.weight + tap * arrays.channels + first;
#pragma omp simd
    for (int64_t i = 0; i < count; ++i) {
      sums[i] += weight[i] * widen(x[i]);
    }
  }
}

// `sequence` is a whole sequence; tokens begin to end - 1 are some of it.
template <class T>
SWITCHYARD_INLINE void conv_tokens_body(const ConvArrays<T>& arrays, const SequenceChunk& sequence,
                                        int64_t begin, int64_t end, T* out) {
  using A = Accumulator<T>;
  A sums[kChannelsAtOnce];
  for (int64_t token = begin; token < end; ++token) {
    for (int64_t first = 0; first < arrays.channels; first += kChannelsAtOnce) {
      const int64_t count = std::min(kChannelsAtOnce, arrays.channels - first);
      convolve(arrays, sequence, token, first, count, sums);
      T* to = out + token * arrays.channels + first;
#pragma omp simd
      for (int64_t i = 0; i < count; ++i) {
        narrow(sums[i] / (1 + vector_exp(-sums[i])), to[i]);
      }
    }
  }
}

SWITCHYARD_VECTOR_CLONES void conv_tokens(const ConvArrays<double>& arrays,
                                          const SequenceChunk& sequence, int64_t begin, int64_t end,
                                          double* out) {
  conv_tokens_body(arrays, sequence, begin, end, out);
}
SWITCHYARD_VECTOR_CLONES void conv_tokens(const ConvArrays<float>& arrays,
                                          const SequenceChunk& sequence, int64_t begin, int64_t end,
                                          float* out) {
  conv_tokens_body(arrays, sequence, begin, end, out);
}
SWITCHYARD_VECTOR_CLONES void conv_tokens(const ConvArrays<at::BFloat16>& arrays,
                                          const SequenceChunk& sequence, int64_t begin, int64_t end,
                                          at::BFloat16* out) {
  conv_tokens_body(arrays, sequence, begin, end, out);
}

// Writes the gradients of the sums before SiLU, and adds the tokens' part of the gradients of
// weight [width, channels] and, behind it, bias [channels].
template <class T>
SWITCHYARD_INLINE void conv_sum_grads_body(const ConvArrays<T>& arrays,
                                           const SequenceChunk& sequence, int64_t begin,
                                           int64_t end, const T* grad_out,
                                           Accumulator<T>* grad_sums, Accumulator<T>* grad_weight) {
  using A = Accumulator<T>;
  A sums[kChannelsAtOnce];
  for (int64_t token = begin; token < end; ++token) {
    for (int64_t first = 0; first < arrays.channels; first += kChannelsAtOnce) {
      const int64_t count = std::min(kChannelsAtOnce, arrays.channels - first);
      convolve(arrays, sequence, token, first, count, sums);
      const T* grad = grad_out + token * arrays.channels + first;
      A* to = grad_sums + token * arrays.channels + first;
      A* grad_bias = grad_weight + arrays.width * arrays.channels + first;
#pragma omp simd
      for (int64_t i = 0; i < count; ++i) {
        const A sigmoid = 1 / (1 + vector_exp(-sums[i]));
        to[i] = widen(grad[i]) * sigmoid * (1 + sums[i] * (1 - sigmoid));
        grad_bias[i] += to[i];
      }
      for (int64_t tap = 0; tap < arrays.width; ++tap) {
        const T* x =
            arrays.row(token - arrays.width + 1 + tap, sequence.begin, sequence.sequence) + first;
        A* grad_tap = grad_weight + tap * arrays.channels + first;
#pragma omp simd
        for (int64_t i = 0; i < count; ++i) {
          grad_tap[i] += to[i] * widen(x[i]);
        }
      }
    }
  }
}

SWITCHYARD_VECTOR_CLONES void conv_sum_grads(const ConvArrays<double>& arrays,
                                             const SequenceChunk& sequence, int64_t begin,
                                             int64_t end, const double* grad_out, double* grad_sums,
                                             double* grad_weight) {
  conv_sum_grads_body(arrays, sequence, begin, end, grad_out, grad_sums, grad_weight);
}
SWITCHYARD_VECTOR_CLONES void conv_sum_grads(const ConvArrays<float>& arrays,
                                             const SequenceChunk& sequence, int64_t begin,
                                             int64_t end, const float* grad_out, float* grad_sums,
                                             float* grad_weight) {
  conv_sum_grads_body(arrays, sequence, begin, end, grad_out, grad_sums, grad_weight);
}
SWITCHYARD_VECTOR_CLONES void conv_sum_grads(const ConvArrays<at::BFloat16>& arrays,
                                             const SequenceChunk& sequence, int64_t begin,
                                             int64_t end, const at::BFloat16* grad_out,
                                             float* grad_sums, float* grad_weight) {
  conv_sum_grads_body(arrays, sequence, begin, end, grad_out, grad_sums, grad_weight);
}

// The gradient of the input of token `token`, which may lie in the history before `start`.
template <class T>
SWITCHYARD_INLINE void conv_input_grad_body(const Accumulator<T>* weight, int64_t width,
                                            int64_t channels, const Accumulator<T>* grad_sums,
                                            int64_t start, int64_t end, int64_t token, T* to) {
  using A = Accumulator<T>;
  A sums[kChannelsAtOnce];
  for (int64_t first = 0; first < channels; first += kChannelsAtOnce) {
    const int64_t count = std::min(kChannelsAtOnce, channels - first);
    std::fill_n(sums, count, A{0});
    // The first and the last token that see it.
    for (int64_t seer = std::max(start, token); seer < std::min(end, token + width); ++seer) {
      const A* grad = grad_sums + seer * channels + first;
      const A* tap = weight + (token - seer + width - 1) * channels + first;
#pragma omp simd
      for (int64_t i = 0; i < count; ++i) {
        sums[i] += grad[i] * tap[i];
      }
    }
#pragma omp simd
    for (int64_t i = 0; i < count; ++i) {
      narrow(sums[i], to[first + i]);
    }
  }
}

SWITCHYARD_VECTOR_CLONES void conv_input_grad(const double* weight, int64_t width, int64_t channels,
                                              const double* grad_sums, int64_t start, int64_t end,
                                              int64_t token, double* to) {
  conv_input_grad_body<double>(weight, width, channels, grad_sums, start, end, token, to);
}
SWITCHYARD_VECTOR_CLONES void conv_input_grad(const float* weight, int64_t width, int64_t channels,
                                              const float* grad_sums, int64_t start, int64_t end,
                                              int64_t token, float* to) {
  conv_input_grad_body<float>(weight, width, channels, grad_sums, start, end, token, to);
}
SWITCHYARD_VECTOR_CLONES void conv_input_grad(const float* weight, int64_t width, int64_t channels,
                                              const float* grad_sums, int64_t start, int64_t end,
                                              int64_t token, at::BFloat16* to) {
  conv_input_grad_body<at::BFloat16>(weight, width, channels, grad_sums, start, end, token, to);
}

// The tensors behind ConvArrays.
struct ConvTensors {
  ConvTensors(const at::Tensor& x, const at::Tensor& weight, const std::optional<at::Tensor>& bias,
              const std::optional<at::Tensor>& past)
      : input(x), history(past) {
    const auto wide = accumulator_type(x.scalar_type());
    taps = weight.to(wide).t().contiguous();
    wide_bias =
        bias ? bias->to(wide).contiguous() : at::zeros({x.size(1)}, x.options().dtype(wide));
    zeros = at::zeros({x.size(1)}, x.options());
  }

  template <class T>
  ConvArrays<T> arrays() const {
    using A = Accumulator<T>;
    return {input.const_data_ptr<T>(),
            history ? history->const_data_ptr<T>() : nullptr,
            taps.const_data_ptr<A>(),
            wide_bias.const_data_ptr<A>(),
            zeros.const_data_ptr<T>(),
            taps.size(0),
            taps.size(1)};
  }

  at::Tensor input;
  std::optional<at::Tensor> history;
  at::Tensor taps;       // [width, channels]
  at::Tensor wide_bias;  // [channels]
  at::Tensor zeros;      // [channels]
};

// The sequence that a part of it belongs to.
SequenceChunk sequence_of(const SequenceChunk& part, const std::vector<int64_t>& starts) {
  const auto i = static_cast<size_t>(part.sequence);
  return {starts[i], starts[i + 1] - starts[i], part.sequence, true, true};
}

at::Tensor conv_forward(const ConvTensors& tensors, const std::vector<int64_t>& starts) {
  at::Tensor out = at::empty_like(tensors.input);
  out.slice(0, starts.back()).zero_();
  const std::vector<SequenceChunk> parts = sequence_chunks(starts, kTokensPerTask);
  visit_float_type(out.scalar_type(), [&](auto type) {
    using T = decltype(type);
    const ConvArrays<T> arrays = tensors.arrays<T>();
    T* to = out.mutable_data_ptr<T>();
    run_tasks(static_cast<int64_t>(parts.size()), [&](int64_t task) {
      const SequenceChunk& part = parts[static_cast<size_t>(task)];
      conv_tokens(arrays, sequence_of(part, starts), part.begin, part.begin + part.size, to);
    });
  });
  return out;
}

struct ConvGradients {
  at::Tensor x;
  at::Tensor weight;
  at::Tensor bias;
  at::Tensor history;  // undefined without one
};

template <class T>
void conv_backward_into(const ConvTensors& tensors, const std::vector<int64_t>& starts,
                        const at::Tensor& grad_out, at::Tensor& grad_sums, at::Tensor& partial,
                        ConvGradients& grads) {
  using A = Accumulator<T>;
  const ConvArrays<T> arrays = tensors.arrays<T>();
  const std::vector<SequenceChunk> parts = sequence_chunks(starts, kTokensPerTask);
  const T* grad = grad_out.const_data_ptr<T>();
  A* sums = grad_sums.mutable_data_ptr<A>();
  A* weights = partial.mutable_data_ptr<A>();
  T* grad_x = grads.x.mutable_data_ptr<T>();
  T* grad_history = grads.history.defined() ? grads.history.mutable_data_ptr<T>() : nullptr;
  const auto num_tasks = static_cast<int64_t>(parts.size());
  const int64_t channels = arrays.channels;
  const int64_t kept = arrays.width - 1;
  run_tasks(num_tasks, [&](int64_t task) {
    const SequenceChunk& part = parts[static_cast<size_t>(task)];
    conv_sum_grads(arrays, sequence_of(part, starts), part.begin, part.begin + part.size, grad,
                   sums, weights + task * (arrays.width + 1) * channels);
  });
  run_tasks(num_tasks, [&](int64_t task) {
    const SequenceChunk& part = parts[static_cast<size_t>(task)];
    const SequenceChunk sequence = sequence_of(part, starts);
    const int64_t start = sequence.begin;
    const int64_t end = start + sequence.size;
    for (int64_t token = part.begin; token < part.begin + part.size; ++token) {
      conv_input_grad(arrays.weight, arrays.width, channels, sums, start, end, token,
                      grad_x + token * channels);
    }
    if (part.is_first && grad_history != nullptr) {
      for (int64_t i = 0; i < kept; ++i) {
        conv_input_grad(arrays.weight, arrays.width, channels, sums, start, end, start - kept + i,
                        grad_history + (part.sequence * kept + i) * channels);
      }
    }
  });
}

ConvGradients conv_backward(const ConvTensors& tensors, const std::vector<int64_t>& starts,
                            const at::Tensor& grad_out) {
  const at::Tensor& x = tensors.input;
  const int64_t width = tensors.taps.size(0);
  const auto num_parts = static_cast<int64_t>(sequence_chunks(starts, kTokensPerTask).size());
  ConvGradients grads;
  grads.x = at::empty_like(x);
  grads.x.slice(0, starts.back()).zero_();
  if (tensors.history) {
    grads.history = at::empty_like(*tensors.history);
  }
  at::Tensor grad_sums = at::empty(x.sizes(), tensors.taps.options());
  at::Tensor partial = at::zeros({num_parts, width + 1, x.size(1)}, tensors.taps.options());
  visit_float_type(x.scalar_type(), [&](auto type) {
    conv_backward_into<decltype(type)>(tensors, starts, grad_out, grad_sums, partial, grads);
  });
  // The parts in rising order.
  at::Tensor sum = at::zeros({width + 1, x.size(1)}, tensors.taps.options());
  for (int64_t part = 0; part < num_parts; ++part) {
    sum.add_(partial.select(0, part));
  }
  grads.weight = sum.slice(0, 0, width).t().to(x.scalar_type()).contiguous();
  grads.bias = sum.select(0, width).to(x.scalar_type(), /*non_blocking=*/false, /*copy=*/true);
  return grads;
}

struct CausalConv : torch::autograd::Function<CausalConv> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& x, const at::Tensor& weight,
                            const std::optional<at::Tensor>& bias,
                            const std::optional<at::Tensor>& history,
                            const std::vector<int64_t>& starts) {
    ctx->save_for_backward(
        {x, weight, bias.value_or(at::Tensor()), history.value_or(at::Tensor())});
    ctx->saved_data["starts"] = starts;
    return conv_forward(ConvTensors(x, weight, bias, history), starts);
  }

  static variable_list backward(AutogradContext* ctx, const variable_list& grads) {
    const variable_list saved = ctx->get_saved_variables();
    const auto given = [](const at::Tensor& tensor) {
      return tensor.defined() ? std::optional(tensor) : std::nullopt;
    };
    const ConvGradients result =
        conv_backward(ConvTensors(saved[0], saved[1], given(saved[2]), given(saved[3])),
                      ctx->saved_data["starts"].toIntVector(), grads[0].contiguous());
    return {result.x,
            result.weight,
            saved[2].defined() ? result.bias : at::Tensor(),
            result.history,
            {}};
  }
};

void check_conv_inputs(const at::Tensor& x, const at::Tensor& weight,
                       const std::optional<at::Tensor>& bias, const SequenceTable& table,
                       const std::optional<at::Tensor>& history) {
  check_float_cpu("causal_conv: x", x);
  check_shape("causal_conv: x", x, {table.num_tokens, kAnySize});
  check_shape("causal_conv: weight", weight, {x.size(1), kAnySize});
  check<ShapeError>(weight.size(1) > 0, "causal_conv: weight must have a width above 0");
  check<ShapeError>(weight.scalar_type() == x.scalar_type(),
                    "causal_conv: weight is {}, but x is {}", c10::toString(weight.scalar_type()),
                    c10::toString(x.scalar_type()));
  if (bias) {
    check_shape("causal_conv: bias", *bias, {x.size(1)});
  }
  if (history) {
    check_shape("causal_conv: history", *history,
                {table.num_sequences(), weight.size(1) - 1, x.size(1)});
    check<ShapeError>(history->scalar_type() == x.scalar_type(),
                      "causal_conv: history is {}, but x is {}",
                      c10::toString(history->scalar_type()), c10::toString(x.scalar_type()));
  }
}

}  // namespace

at::Tensor causal_conv(const at::Tensor& x, const at::Tensor& weight,
                       const std::optional<at::Tensor>& bias, const SequenceTable& table,
                       const std::optional<at::Tensor>& history) {
  check_conv_inputs(x, weight, bias, table, history);
  return CausalConv::apply(x.contiguous(), weight, bias,
                           history ? std::optional(history->contiguous()) : std::nullopt,
                           table.starts);
}

at::Tensor conv_history(const at::Tensor& x, int64_t width, const SequenceTable& table,
                        const std::optional<at::Tensor>& history) {
  check_shape("conv_history: x", x, {table.num_tokens, kAnySize});
  std::vector<at::Tensor> all;
  for (int64_t i = 0; i < table.num_sequences(); ++i) {
    const int64_t start = table.starts[static_cast<size_t>(i)];
    const at::Tensor before =
        history ? history->select(0, i) : at::zeros({width - 1, x.size(1)}, x.options());
    const at::Tensor inputs = at::cat({before, x.slice(0, start, start + table.length(i))});
    all.push_back(inputs.slice(0, inputs.size(0) - (width - 1)));
  }
  return all.empty() ? at::zeros({0, width - 1, x.size(1)}, x.options()) : at::stack(all);
}

}  // namespace switchyard
