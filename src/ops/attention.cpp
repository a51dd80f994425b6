#include "ops/attention.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <type_traits>
#include <vector>

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>

#include "base/error.h"
#include "base/shape.h"
#include "ops/cpu/attention_kernels.h"
#include "ops/float_types.h"

namespace switchyard {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

template <class T, class Element = std::remove_const_t<T>>
HeadRows<T> rows_of(const at::Tensor& tensor) {
  if constexpr (std::is_const_v<T>) {
    return {tensor.const_data_ptr<Element>(), tensor.stride(0), tensor.stride(1)};
  } else {
    return {tensor.mutable_data_ptr<Element>(), tensor.stride(0), tensor.stride(1)};
  }
}

AttentionShape shape_of(const at::Tensor& q, const at::Tensor& k, double scale, int64_t window) {
  return {q.size(1), k.size(1), q.size(2), scale, window};
}

at::Tensor with_adjacent_head_dim(const at::Tensor& tensor) {
  return tensor.stride(2) == 1 ? tensor : tensor.contiguous();
}

int64_t num_queries(const std::vector<AttentionSpan>& spans) {
  int64_t sum = 0;
  for (const AttentionSpan& span : spans) {
    sum += span.num_queries;
  }
  return sum;
}

int64_t num_keys(const std::vector<AttentionSpan>& spans) {
  int64_t sum = 0;
  for (const AttentionSpan& span : spans) {
    sum += span.num_keys;
  }
  return sum;
}

AttentionOutput forward_over(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                             const std::vector<AttentionSpan>& spans, double scale,
                             int64_t window) {
  AttentionOutput output{
      at::empty(q.sizes(), q.options()),
      at::empty({q.size(0), q.size(1)}, q.options().dtype(accumulator_type(q.scalar_type())))};
  if (num_queries(spans) < q.size(0)) {
    output.out.zero_();
    output.log_sum_exp.fill_(-std::numeric_limits<double>::infinity());
  }
  visit_float_type(q.scalar_type(), [&](auto type) {
    using T = decltype(type);
    attention_forward(
        AttentionForwardArrays<T>{rows_of<const T>(q), rows_of<const T>(k), rows_of<const T>(v),
                                  rows_of<T>(output.out),
                                  output.log_sum_exp.mutable_data_ptr<Accumulator<T>>()},
        shape_of(q, k, scale, window), spans);
  });
  return output;
}

AttentionGradients backward_over(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                                 const AttentionOutput& whole, const at::Tensor& grad_out,
                                 const std::vector<AttentionSpan>& spans, double scale,
                                 int64_t window) {
  AttentionGradients grads{at::empty(q.sizes(), q.options()), at::empty(k.sizes(), k.options()),
                           at::empty(k.sizes(), k.options())};
  if (num_queries(spans) < q.size(0)) {
    grads.q.zero_();
  }
  if (num_keys(spans) < k.size(0)) {
    grads.k.zero_();
    grads.v.zero_();
  }
  visit_float_type(q.scalar_type(), [&](auto type) {
    using T = decltype(type);
    attention_backward(
        AttentionBackwardArrays<T>{rows_of<const T>(q), rows_of<const T>(k), rows_of<const T>(v),
                                   rows_of<const T>(whole.out), rows_of<const T>(grad_out),
                                   whole.log_sum_exp.const_data_ptr<Accumulator<T>>(),
                                   rows_of<T>(grads.q), rows_of<T>(grads.k), rows_of<T>(grads.v)},
        shape_of(q, k, scale, window), spans);
  });
  return grads;
}

at::Tensor decode_over(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                       const AttentionSpan& span, double scale, int64_t window) {
  at::Tensor out = at::empty(q.sizes(), q.options());
  visit_float_type(q.scalar_type(), [&](auto type) {
    using T = decltype(type);
    attention_decode(AttentionDecodeArrays<T>{rows_of<const T>(q), rows_of<const T>(k),
                                              rows_of<const T>(v), rows_of<T>(out)},
                     shape_of(q, k, scale, window), span);
  });
  return out;
}

// Spans as autograd keeps them.
std::vector<int64_t> flatten(const std::vector<AttentionSpan>& spans) {
  std::vector<int64_t> numbers;
  for (const AttentionSpan& span : spans) {
    numbers.insert(numbers.end(), {span.first_query, span.num_queries, span.first_key,
                                   span.num_keys, span.seen_by_first});
  }
  return numbers;
}

std::vector<AttentionSpan> spans_from(const std::vector<int64_t>& numbers) {
  std::vector<AttentionSpan> spans;
  for (size_t i = 0; i < numbers.size(); i += 5) {
    spans.push_back({numbers[i], numbers[i + 1], numbers[i + 2], numbers[i + 3], numbers[i + 4]});
  }
  return spans;
}

struct SpanAttention : torch::autograd::Function<SpanAttention> {
  static variable_list forward(AutogradContext* ctx, const at::Tensor& q, const at::Tensor& k,
                               const at::Tensor& v, const std::vector<int64_t>& spans, double scale,
                               int64_t window) {
    const AttentionOutput output = forward_over(q, k, v, spans_from(spans), scale, window);
    ctx->save_for_backward({q, k, v, output.out, output.log_sum_exp});
    ctx->saved_data["spans"] = spans;
    ctx->saved_data["scale"] = scale;
    ctx->saved_data["window"] = window;
    ctx->mark_non_differentiable({output.log_sum_exp});
    return {output.out, output.log_sum_exp};
  }

  static variable_list backward(AutogradContext* ctx, const variable_list& grads) {
    const variable_list saved = ctx->get_saved_variables();
    const AttentionGradients result = backward_over(
        saved[0], saved[1], saved[2], {saved[3], saved[4]}, with_adjacent_head_dim(grads[0]),
        spans_from(ctx->saved_data["spans"].toIntVector()), ctx->saved_data["scale"].toDouble(),
        ctx->saved_data["window"].toInt());
    return {result.q, result.k, result.v, {}, {}, {}};
  }
};

void check_heads(const char* op, const at::Tensor& q, const at::Tensor& k, const at::Tensor& v) {
  check_float_cpu(fmt::format("{}: q", op), q);
  check_shape(fmt::format("{}: q", op), q, {kAnySize, kAnySize, kAnySize});
  check_shape(fmt::format("{}: k", op), k, {kAnySize, kAnySize, q.size(2)});
  check_shape(fmt::format("{}: v", op), v, {k.size(0), k.size(1), q.size(2)});
  check<ShapeError>(k.size(1) > 0 && q.size(1) % k.size(1) == 0,
                    "{}: the number of heads ({}) must be a multiple of kv_heads ({})", op,
                    q.size(1), k.size(1));
  check<ShapeError>(k.scalar_type() == q.scalar_type() && v.scalar_type() == q.scalar_type(),
                    "{}: q is {}, k {} and v {}; they must have one dtype", op,
                    c10::toString(q.scalar_type()), c10::toString(k.scalar_type()),
                    c10::toString(v.scalar_type()));
}

void check_window(const char* op, int64_t window) {
  check<ShapeError>(window >= 0, "{}: the window ({}) must be 0 or more", op, window);
}

double scale_of(const at::Tensor& q, const AttentionOptions& options) {
  return options.scale.value_or(1.0 / std::sqrt(static_cast<double>(q.size(2))));
}

}  // namespace

AttentionOutput attention_over(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                               const std::vector<AttentionSpan>& spans,
                               const AttentionOptions& options) {
  check_heads("attention", q, k, v);
  check_window("attention", options.window);
  const variable_list out = SpanAttention::apply(
      with_adjacent_head_dim(q), with_adjacent_head_dim(k), with_adjacent_head_dim(v),
      flatten(spans), scale_of(q, options), options.window);
  return {out[0], out[1]};
}

AttentionOutput attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                          const SequenceTable& table, const AttentionOptions& options) {
  check_heads("attention", q, k, v);
  check<ShapeError>(q.size(0) == table.num_tokens && k.size(0) == table.num_tokens,
                    "attention: q has {} tokens and k {}, the sequence table has {}", q.size(0),
                    k.size(0), table.num_tokens);
  const TokenRange row{0, table.num_tokens};
  AttentionOutput output =
      attention_over(q, k, v, attention_spans(table.starts, row, row, options.window), options);
  if (table.num_real_tokens() < table.num_tokens) {
    output.log_sum_exp = output.log_sum_exp.clone();
    output.log_sum_exp.slice(0, table.num_real_tokens()).zero_();
  }
  return output;
}

AttentionOutput join(const AttentionOutput& a, const AttentionOutput& b) {
  const auto type = a.log_sum_exp.scalar_type();
  const at::Tensor log_sum_exp = at::logaddexp(a.log_sum_exp, b.log_sum_exp);
  // A query that has seen no key yet weighs nothing.
  const at::Tensor base = log_sum_exp.masked_fill(log_sum_exp.isinf(), 0);
  const auto weigh = [&](const AttentionOutput& part) {
    return part.out.to(type) * (part.log_sum_exp - base).exp().unsqueeze(-1);
  };
  return {weigh(a) + weigh(b), log_sum_exp};
}

AttentionGradients attention_gradients(const at::Tensor& q, const at::Tensor& k,
                                       const at::Tensor& v, const AttentionOutput& whole,
                                       const at::Tensor& grad_out,
                                       const std::vector<AttentionSpan>& spans,
                                       const AttentionOptions& options) {
  check_heads("attention_gradients", q, k, v);
  check_window("attention_gradients", options.window);
  check_shape("attention_gradients: grad_out", grad_out, {q.size(0), q.size(1), q.size(2)});
  const at::NoGradGuard no_grad;
  return backward_over(
      with_adjacent_head_dim(q), with_adjacent_head_dim(k), with_adjacent_head_dim(v),
      {with_adjacent_head_dim(whole.out), whole.log_sum_exp.contiguous()},
      with_adjacent_head_dim(grad_out), spans, scale_of(q, options), options.window);
}

at::Tensor attention_with_cache(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                                int64_t first_position, const AttentionOptions& options) {
  check_heads("attention_with_cache", q, k, v);
  check_window("attention_with_cache", options.window);
  check<ShapeError>(first_position >= 0 && first_position + q.size(0) <= k.size(0),
                    "attention_with_cache: {} new tokens from position {} on need as many keys, "
                    "got {}",
                    q.size(0), first_position, k.size(0));
  const at::NoGradGuard no_grad;
  if (q.size(0) == 0) {
    return at::empty(q.sizes(), q.options());
  }
  // Keys before the window of the first query are not looked at.
  const int64_t first_key =
      options.window > 0 ? std::max<int64_t>(0, first_position + 1 - options.window) : 0;
  const AttentionSpan span{.first_query = 0,
                           .num_queries = q.size(0),
                           .first_key = first_key,
                           .num_keys = first_position + q.size(0) - first_key,
                           .seen_by_first = first_position + 1 - first_key};
  constexpr int64_t kFewQueries = 4;  // more share what packing costs
  const double scale = scale_of(q, options);
  return q.size(0) <= kFewQueries
             ? decode_over(with_adjacent_head_dim(q), with_adjacent_head_dim(k),
                           with_adjacent_head_dim(v), span, scale, options.window)
             : forward_over(with_adjacent_head_dim(q), with_adjacent_head_dim(k),
                            with_adjacent_head_dim(v), {span}, scale, options.window)
                   .out;
}

}  // namespace switchyard
