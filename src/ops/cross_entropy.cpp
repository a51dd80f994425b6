#include "ops/cross_entropy.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <torch/csrc/autograd/custom_function.h>

#include "base/error.h"
#include "base/shape.h"
#include "ops/float_types.h"
#include "ops/grouped_gemm.h"
#include "ops/kernel_types.h"
#include "ops/lanes.h"

namespace switchyard {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// Enough elements to be worth waking another thread.
constexpr int64_t kElementsPerTask = 8192;

// Logits alive at a time, within these numbers of tokens.
constexpr int64_t kLogitsPerChunk = 1 << 20;
constexpr int64_t kFewestTokensPerChunk = 64;
constexpr int64_t kMostTokensPerChunk = 1024;

template <class A>
SWITCHYARD_INLINE A max_body(const A* logits, int64_t vocab) {
  A lanes[kLanes];
  std::fill_n(lanes, kLanes, -std::numeric_limits<A>::infinity());
  int64_t i = 0;
  for (; i + kLanes <= vocab; i += kLanes) {
#pragma omp simd
    for (int64_t lane = 0; lane < kLanes; ++lane) {
      lanes[lane] = logits[i + lane] > lanes[lane] ? logits[i + lane] : lanes[lane];
    }
  }
  for (int64_t lane = 0; i + lane < vocab; ++lane) {
    lanes[lane] = logits[i + lane] > lanes[lane] ? logits[i + lane] : lanes[lane];
  }
  A largest = lanes[0];
  for (int64_t lane = 1; lane < kLanes; ++lane) {
    largest = lanes[lane] > largest ? lanes[lane] : largest;
  }
  return largest;
}

SWITCHYARD_VECTOR_CLONES double max_of(const double* logits, int64_t vocab) {
  return max_body(logits, vocab);
}
SWITCHYARD_VECTOR_CLONES float max_of(const float* logits, int64_t vocab) {
  return max_body(logits, vocab);
}

template <class A>
SWITCHYARD_INLINE A exponentiate_body(A* logits, int64_t vocab, A largest) {
#pragma omp simd
  for (int64_t i = 0; i < vocab; ++i) {
    logits[i] = vector_exp(logits[i] - largest);
  }
  return lane_sum<A>(
      vocab, [=](int64_t i) __attribute__((always_inline)) { return logits[i]; });
}

SWITCHYARD_VECTOR_CLONES double exponentiate_row(double* logits, int64_t vocab, double largest) {
  return exponentiate_body(logits, vocab, largest);
}
SWITCHYARD_VECTOR_CLONES float exponentiate_row(float* logits, int64_t vocab, float largest) {
  return exponentiate_body(logits, vocab, largest);
}

template <class A, class T>
SWITCHYARD_INLINE void scale_body(const A* exponentials, int64_t vocab, A factor, T* gradient) {
#pragma omp simd
  for (int64_t i = 0; i < vocab; ++i) {
    narrow(exponentials[i] * factor, gradient[i]);
  }
}

SWITCHYARD_VECTOR_CLONES void scale_row(const double* exponentials, int64_t vocab, double factor,
                                        double* gradient) {
  scale_body(exponentials, vocab, factor, gradient);
}
SWITCHYARD_VECTOR_CLONES void scale_row(const float* exponentials, int64_t vocab, float factor,
                                        float* gradient) {
  scale_body(exponentials, vocab, factor, gradient);
}
SWITCHYARD_VECTOR_CLONES void scale_row(const float* exponentials, int64_t vocab, float factor,
                                        at::BFloat16* gradient) {
  scale_body(exponentials, vocab, factor, gradient);
}

template <class Row>
void parallel_rows(const at::Tensor& logits, Row row) {
  at::parallel_for(0, logits.size(0), 1 + kElementsPerTask / std::max<int64_t>(logits.size(1), 1),
                   [&](int64_t begin, int64_t end) {
                     for (int64_t i = begin; i < end; ++i) {
                       row(i);
                     }
                   });
}

// Calls `visit` with a zero of the C++ type of fp64 or fp32.
template <class Visit>
void visit_accumulator(at::ScalarType type, Visit visit) {
  if (type == at::kDouble) {
    visit(double{});
  } else {
    visit(float{});
  }
}

// `vocab`: the rows of the largest part, so that all ranks take equally many chunks.
int64_t tokens_per_chunk(int64_t vocab) {
  return std::clamp(kLogitsPerChunk / std::max<int64_t>(vocab, 1), kFewestTokensPerChunk,
                    kMostTokensPerChunk);
}

// log(sums[0]) - sums[1], 0 where the label is ignored.
void write_losses(const at::Tensor& sums, const at::Tensor& labels, at::Tensor losses) {
  visit_accumulator(sums.scalar_type(), [&](auto zero) {
    using A = decltype(zero);
    const int64_t chunk = labels.size(0);
    const auto* sum = sums.const_data_ptr<A>();
    const auto* label = labels.const_data_ptr<int64_t>();
    auto* loss = losses.mutable_data_ptr<A>();
    for (int64_t i = 0; i < chunk; ++i) {
      loss[i] = label[i] == kIgnoredLabel ? A{0} : std::log(sum[i]) - sum[chunk + i];
    }
  });
}

// Added token by token in fp64.
at::Tensor weighted_sum(const at::Tensor& losses, const at::Tensor& token_weights) {
  double total = 0;
  visit_accumulator(losses.scalar_type(), [&](auto zero) {
    using A = decltype(zero);
    const auto* loss = losses.const_data_ptr<A>();
    const auto* weight = token_weights.const_data_ptr<A>();
    for (int64_t i = 0; i < losses.size(0); ++i) {
      total += static_cast<double>(loss[i]) * static_cast<double>(weight[i]);
    }
  });
  return at::full({}, total, losses.options());
}

// The C library's tanh, an element at a time: a small part of the products' time.
template <class A>
void bend(A* values, int64_t count, A factor, A cap, A* slopes) {
  for (int64_t i = 0; i < count; ++i) {
    const A share = std::tanh(values[i] * factor / cap);
    values[i] = cap * share;
    if (slopes != nullptr) {
      slopes[i] = factor * (1 - share * share);
    }
  }
}

// The three products of a chunk, T being the dtype of hidden and weight.
template <class T>
struct ChunkProducts {
  const TypedKernels<T>& kernels;
  const T* weight;  // [vocab, hidden]
  int64_t vocab;
  int64_t hidden_size;

  // logits [chunk, vocab] = hidden x weight^T, unrounded.
  void logits(const T* hidden, int64_t chunk, Sum<T>* to) const {
    multiply_all(kernels, {MatrixProduct<T>{.a = hidden,
                                            .a_stride = hidden_size,
                                            .b = weight,
                                            .b_stride = hidden_size,
                                            .b_transposed = true,
                                            .c = nullptr,
                                            .c_stride = vocab,
                                            .m = chunk,
                                            .n = vocab,
                                            .k = hidden_size,
                                            .wide_c = to}});
  }

  // grad_hidden [chunk, hidden] = gradient x weight; grad_weight [vocab, hidden] += gradient^T x
  // hidden. Either may be null.
  void backward(const T* gradient, const T* hidden, int64_t chunk, T* grad_hidden,
                Sum<T>* grad_weight) const {
    std::vector<MatrixProduct<T>> products;
    if (grad_hidden != nullptr) {
      products.push_back({.a = gradient,
                          .a_stride = vocab,
                          .b = weight,
                          .b_stride = hidden_size,
                          .c = grad_hidden,
                          .c_stride = hidden_size,
                          .m = chunk,
                          .n = hidden_size,
                          .k = vocab});
    }
    if (grad_weight != nullptr) {
      products.push_back({.a = gradient,
                          .a_stride = vocab,
                          .a_transposed = true,
                          .b = hidden,
                          .b_stride = hidden_size,
                          .c = nullptr,
                          .c_stride = hidden_size,
                          .m = vocab,
                          .n = hidden_size,
                          .k = chunk,
                          .wide_c = grad_weight,
                          .accumulate = true});
    }
    multiply_all(kernels, products);
  }
};

struct Gradients {
  at::Tensor hidden;  // undefined where not wanted
  at::Tensor weight;  // fp32 for bf16
};

// Fills `token_losses` and adds to the gradients, chunk by chunk.
void run_chunks(const at::Tensor& hidden, const at::Tensor& weight, const at::Tensor& labels,
                const at::Tensor& token_weights, const VocabReduce& reduce,
                const LogitFunction& function, at::Tensor& token_losses, Gradients& grads) {
  const int64_t vocab = weight.size(0);
  const int64_t largest_part =
      reduce.vocab_size < 0 ? vocab : (reduce.vocab_size + reduce.num_parts - 1) / reduce.num_parts;
  const int64_t chunk_tokens = std::min(tokens_per_chunk(largest_part), hidden.size(0));
  const bool needs_gradient = grads.hidden.defined() || grads.weight.defined();
  at::Tensor logits_buffer = at::empty({chunk_tokens, vocab}, token_weights.options());
  at::Tensor gradient_buffer = hidden.scalar_type() == at::kBFloat16 && needs_gradient
                                   ? at::empty({chunk_tokens, vocab}, hidden.options())
                                   : logits_buffer;
  visit_kernels(hidden.scalar_type(), [&](const auto& kernels) {
    using T = Value<decltype(kernels)>;
    const ChunkProducts<T> products{kernels, values_of<T>(weight), vocab, hidden.size(1)};
    for (int64_t start = 0; start < hidden.size(0); start += chunk_tokens) {
      const int64_t chunk = std::min(chunk_tokens, hidden.size(0) - start);
      const T* chunk_hidden = values_of<T>(hidden) + start * hidden.size(1);
      const at::Tensor chunk_labels = labels.narrow(0, start, chunk);
      at::Tensor logits = logits_buffer.narrow(0, 0, chunk);
      products.logits(chunk_hidden, chunk, mutable_values_of<Sum<T>>(logits));
      const at::Tensor slopes = apply_(logits, function, needs_gradient);
      at::Tensor largest = row_max(logits);
      if (reduce.max) {
        reduce.max(largest);
      }
      at::Tensor sums = exponentiate_(logits, largest, chunk_labels, reduce.vocab_offset);
      if (reduce.sum) {
        reduce.sum(sums);
      }
      write_losses(sums, chunk_labels, token_losses.narrow(0, start, chunk));
      if (!needs_gradient) {
        continue;
      }
      at::Tensor gradient = gradient_buffer.narrow(0, 0, chunk);
      exponentials_to_gradient(logits, sums, chunk_labels, token_weights.narrow(0, start, chunk),
                               reduce.vocab_offset, gradient);
      if (slopes.defined()) {
        gradient.mul_(slopes);
      }
      products.backward(values_of<T>(gradient), chunk_hidden, chunk,
                        grads.hidden.defined()
                            ? mutable_values_of<T>(grads.hidden) + start * hidden.size(1)
                            : nullptr,
                        grads.weight.defined() ? mutable_values_of<Sum<T>>(grads.weight) : nullptr);
    }
  });
}

// value x factor in the dtype `type`, without a pass over it where nothing would change.
at::Tensor scaled(const at::Tensor& value, const at::Tensor& factor, at::ScalarType type) {
  if (!value.defined()) {
    return {};
  }
  if (factor.item<double>() == 1) {
    return value.to(type);
  }
  return value.scalar_type() == type ? value * factor.to(type) : (value * factor).to(type);
}

struct LinearCrossEntropy : torch::autograd::Function<LinearCrossEntropy> {
  static variable_list forward(AutogradContext* ctx, const at::Tensor& hidden,
                               const at::Tensor& weight, const at::Tensor& labels,
                               const at::Tensor& token_weights, const VocabReduce& reduce,
                               const LogitFunction& function, bool needs_grad_hidden,
                               bool needs_grad_weight) {
    at::Tensor token_losses = at::empty({hidden.size(0)}, token_weights.options());
    Gradients grads;
    if (needs_grad_hidden) {
      grads.hidden = at::empty_like(hidden);
    }
    if (needs_grad_weight) {
      grads.weight = at::zeros(weight.sizes(), token_weights.options());
    }
    run_chunks(hidden, weight, labels, token_weights, reduce, function, token_losses, grads);
    ctx->save_for_backward({grads.hidden, grads.weight});
    ctx->saved_data["type"] = static_cast<int64_t>(weight.scalar_type());
    ctx->mark_non_differentiable({token_losses});
    return {weighted_sum(token_losses, token_weights), token_losses};
  }

  static variable_list backward(AutogradContext* ctx, const variable_list& grads) {
    const variable_list saved = ctx->get_saved_variables();
    const auto type = static_cast<at::ScalarType>(ctx->saved_data["type"].toInt());
    return {
        scaled(saved[0], grads[0], type), scaled(saved[1], grads[0], type), {}, {}, {}, {}, {}, {}};
  }
};

void check_labels(const at::Tensor& labels, int64_t tokens, int64_t vocab_size) {
  check_shape("linear_cross_entropy: labels", labels, {tokens});
  check<ShapeError>(labels.scalar_type() == at::kLong,
                    "linear_cross_entropy: labels must be int64, got {}",
                    c10::toString(labels.scalar_type()));
  const auto* label = labels.const_data_ptr<int64_t>();
  for (int64_t i = 0; i < tokens; ++i) {
    check<ShapeError>(
        (label[i] >= 0 && label[i] < vocab_size) || label[i] == kIgnoredLabel,
        "linear_cross_entropy: label {} of token {} is outside the vocabulary of {} and is not {}",
        label[i], i, vocab_size, kIgnoredLabel);
  }
}

}  // namespace

at::Tensor row_max(const at::Tensor& logits) {
  at::Tensor largest = at::empty({logits.size(0)}, logits.options());
  visit_accumulator(logits.scalar_type(), [&](auto zero) {
    using A = decltype(zero);
    const int64_t vocab = logits.size(1);
    const auto* from = logits.const_data_ptr<A>();
    auto* to = largest.mutable_data_ptr<A>();
    parallel_rows(logits, [&](int64_t row) { to[row] = max_of(from + row * vocab, vocab); });
  });
  return largest;
}

at::Tensor apply_(at::Tensor& products, const LogitFunction& function, bool needs_slopes) {
  at::Tensor slopes;
  if (function.is_identity()) {
    return slopes;
  }
  if (function.softcap == 0) {
    products.mul_(function.multiplier);
    return needs_slopes ? at::full_like(products, function.multiplier) : slopes;
  }
  if (needs_slopes) {
    slopes = at::empty_like(products);
  }
  visit_accumulator(products.scalar_type(), [&](auto zero) {
    using A = decltype(zero);
    auto* values = products.mutable_data_ptr<A>();
    auto* to = needs_slopes ? slopes.mutable_data_ptr<A>() : nullptr;
    at::parallel_for(0, products.numel(), kElementsPerTask, [&](int64_t begin, int64_t end) {
      bend(values + begin, end - begin, static_cast<A>(function.multiplier),
           static_cast<A>(function.softcap), to == nullptr ? nullptr : to + begin);
    });
  });
  return slopes;
}

at::Tensor exponentiate_(at::Tensor& logits, const at::Tensor& row_max, const at::Tensor& labels,
                         int64_t vocab_offset) {
  const int64_t chunk = logits.size(0);
  const int64_t vocab = logits.size(1);
  at::Tensor sums = at::empty({2, chunk}, logits.options());
  visit_accumulator(logits.scalar_type(), [&](auto zero) {
    using A = decltype(zero);
    const auto* largest = row_max.const_data_ptr<A>();
    const auto* label = labels.const_data_ptr<int64_t>();
    auto* values = logits.mutable_data_ptr<A>();
    auto* sum = sums.mutable_data_ptr<A>();
    parallel_rows(logits, [&](int64_t row) {
      A* row_values = values + row * vocab;
      const int64_t local = label[row] - vocab_offset;
      sum[chunk + row] = local >= 0 && local < vocab ? row_values[local] - largest[row] : A{0};
      sum[row] = exponentiate_row(row_values, vocab, largest[row]);
    });
  });
  return sums;
}

void exponentials_to_gradient(const at::Tensor& exponentials, const at::Tensor& sums,
                              const at::Tensor& labels, const at::Tensor& token_weights,
                              int64_t vocab_offset, at::Tensor& gradient) {
  const int64_t vocab = exponentials.size(1);
  const auto convert = [&](auto zero, auto gradient_zero) {
    using A = decltype(zero);
    using T = decltype(gradient_zero);
    const auto* from = exponentials.const_data_ptr<A>();
    const auto* sum = sums.const_data_ptr<A>();
    const auto* label = labels.const_data_ptr<int64_t>();
    const auto* weights = token_weights.const_data_ptr<A>();
    auto* to = gradient.mutable_data_ptr<T>();
    parallel_rows(exponentials, [&](int64_t row) {
      const A weight = label[row] == kIgnoredLabel ? A{0} : weights[row];
      const A factor = weight / sum[row];
      const int64_t local = label[row] - vocab_offset;
      const bool holds_label = local >= 0 && local < vocab;
      const A of_label = holds_label ? from[row * vocab + local] : A{0};
      scale_row(from + row * vocab, vocab, factor, to + row * vocab);
      if (holds_label) {
        narrow(of_label * factor - weight, to[row * vocab + local]);
      }
    });
  };
  if (exponentials.scalar_type() == at::kDouble) {
    convert(double{}, double{});
  } else if (gradient.scalar_type() == at::kBFloat16) {
    convert(float{}, at::BFloat16{});
  } else {
    convert(float{}, float{});
  }
}

CrossEntropyOutput linear_cross_entropy(const at::Tensor& hidden, const at::Tensor& weight,
                                        const at::Tensor& labels, const at::Tensor& token_weights,
                                        const VocabReduce& reduce, const LogitFunction& function) {
  check_float_cpu("linear_cross_entropy: hidden", hidden);
  check_shape("linear_cross_entropy: hidden", hidden, {kAnySize, kAnySize});
  check_shape("linear_cross_entropy: weight", weight, {kAnySize, hidden.size(1)});
  check<ShapeError>(weight.scalar_type() == hidden.scalar_type(),
                    "linear_cross_entropy: weight is {}, but hidden is {}",
                    c10::toString(weight.scalar_type()), c10::toString(hidden.scalar_type()));
  check_shape("linear_cross_entropy: token_weights", token_weights, {hidden.size(0)});
  check<ShapeError>(token_weights.scalar_type() == accumulator_type(hidden.scalar_type()),
                    "linear_cross_entropy: token_weights must be {} for hidden of {}, got {}",
                    c10::toString(accumulator_type(hidden.scalar_type())),
                    c10::toString(hidden.scalar_type()),
                    c10::toString(token_weights.scalar_type()));
  const at::Tensor whole_labels = labels.contiguous();
  check_labels(whole_labels, hidden.size(0),
               reduce.vocab_size < 0 ? weight.size(0) : reduce.vocab_size);
  const bool grad_mode = at::GradMode::is_enabled();
  const variable_list out = LinearCrossEntropy::apply(
      hidden.contiguous(), weight.contiguous(), whole_labels, token_weights.contiguous(), reduce,
      function, grad_mode && hidden.requires_grad(), grad_mode && weight.requires_grad());
  return {out[0], out[1]};
}

}  // namespace switchyard
