#include "ops/attention.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <type_traits>
#include <vector>

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <torch/csrc/autograd/custom_function.h>

#include "base/error.h"
#include "base/shape.h"
#include "ops/cpu/attention_kernels.h"
#include "ops/float_types.h"
#include "ops/lanes.h"

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

AttentionShape shape_of(const at::Tensor& q, const at::Tensor& k, const AttentionOptions& options) {
  const double scale = options.scale.value_or(1.0 / std::sqrt(static_cast<double>(q.size(2))));
  return {q.size(1), k.size(1), q.size(2), scale, options.window, options.softcap};
}

// As the kernels read them; undefined for none.
at::Tensor sinks_for(const at::Tensor& q, const AttentionOptions& options) {
  return options.sinks.defined()
             ? options.sinks.detach().to(accumulator_type(q.scalar_type())).contiguous()
             : at::Tensor();
}

template <class T>
const Accumulator<T>* data_of(const at::Tensor& sinks) {
  return sinks.defined() ? sinks.const_data_ptr<Accumulator<T>>() : nullptr;
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
                             const std::vector<AttentionSpan>& spans,
                             const AttentionOptions& options) {
  const at::Tensor sinks = sinks_for(q, options);
  AttentionOutput output{
      at::empty(q.sizes(), q.options()),
      at::empty({q.size(0), q.size(1)}, q.options().dtype(accumulator_type(q.scalar_type())))};
  if (num_queries(spans) < q.size(0)) {
    output.out.zero_();
    if (sinks.defined()) {
      output.log_sum_exp.copy_(sinks);
    } else {
      output.log_sum_exp.fill_(-std::numeric_limits<double>::infinity());
    }
  }
  visit_float_type(q.scalar_type(), [&](auto type) {
    using T = decltype(type);
    attention_forward(
        AttentionForwardArrays<T>{rows_of<const T>(q), rows_of<const T>(k), rows_of<const T>(v),
                                  data_of<T>(sinks), rows_of<T>(output.out),
                                  output.log_sum_exp.mutable_data_ptr<Accumulator<T>>()},
        shape_of(q, k, options), spans);
  });
  return output;
}

AttentionGradients backward_over(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                                 const AttentionOutput& whole, const at::Tensor& grad_out,
                                 const std::vector<AttentionSpan>& spans,
                                 const AttentionOptions& options) {
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
        shape_of(q, k, options), spans);
  });
  return grads;
}

at::Tensor decode_over(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                       const AttentionSpan& span, const AttentionOptions& options) {
  const at::Tensor sinks = sinks_for(q, options);
  at::Tensor out = at::empty(q.sizes(), q.options());
  visit_float_type(q.scalar_type(), [&](auto type) {
    using T = decltype(type);
    attention_decode(
        AttentionDecodeArrays<T>{rows_of<const T>(q), rows_of<const T>(k), rows_of<const T>(v),
                                 data_of<T>(sinks), rows_of<T>(out)},
        shape_of(q, k, options), span);
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
                               const at::Tensor& v, const std::optional<at::Tensor>& given_sinks,
                               const std::vector<int64_t>& spans,
                               const std::vector<double>& options) {
    AttentionOptions with_sinks = options_from(options);
    const at::Tensor sinks = given_sinks.value_or(at::Tensor());
    with_sinks.sinks = sinks;
    const AttentionOutput output = forward_over(q, k, v, spans_from(spans), with_sinks);
    ctx->save_for_backward({q, k, v, sinks, output.out, output.log_sum_exp});
    ctx->saved_data["spans"] = spans;
    ctx->saved_data["options"] = options;
    ctx->mark_non_differentiable({output.log_sum_exp});
    return {output.out, output.log_sum_exp};
  }

  static variable_list backward(AutogradContext* ctx, const variable_list& grads) {
    const variable_list saved = ctx->get_saved_variables();
    const AttentionOutput whole{saved[4], saved[5]};
    const at::Tensor grad_out = with_adjacent_head_dim(grads[0]);
    const AttentionGradients result =
        backward_over(saved[0], saved[1], saved[2], whole, grad_out,
                      spans_from(ctx->saved_data["spans"].toIntVector()),
                      options_from(ctx->saved_data["options"].toDoubleVector()));
    return {result.q, result.k, result.v, sink_gradients(whole, grad_out, saved[3]), {}, {}};
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

void check_options(const char* op, const at::Tensor& q, const AttentionOptions& options) {
  check<ShapeError>(options.window >= 0, "{}: the window ({}) must be 0 or more", op,
                    options.window);
  check<ShapeError>(options.softcap >= 0, "{}: the soft cap ({}) must be 0 or more", op,
                    options.softcap);
  if (options.sinks.defined()) {
    check_float_cpu(fmt::format("{}: sinks", op), options.sinks);
    check_shape(fmt::format("{}: sinks", op), options.sinks, {q.size(1)});
  }
}

// Of one head, over its tokens in rising order: -sum of exp(sink - log_sum_exp) x (out . grad_out).
template <class T>
Accumulator<T> sink_gradient(const HeadRows<const T>& out, const HeadRows<const T>& grad_out,
                             const Accumulator<T>* log_sum_exp, Accumulator<T> sink,
                             const AttentionShape& shape, int64_t num_tokens, int64_t head) {
  double sum = 0;
  for (int64_t token = 0; token < num_tokens; ++token) {
    const T* a = out.row(token, head);
    const T* b = grad_out.row(token, head);
    Accumulator<T> product = 0;
    for (int64_t dim = 0; dim < shape.head_dim; ++dim) {
      product += widen(a[dim]) * widen(b[dim]);
    }
    // What saw no key has given zeros, whatever its gradient.
    if (product != 0) {
      sum -= std::exp(sink - log_sum_exp[token * shape.heads + head]) * product;
    }
  }
  return static_cast<Accumulator<T>>(sum);
}

}  // namespace

AttentionOutput attention_over(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                               const std::vector<AttentionSpan>& spans,
                               const AttentionOptions& options) {
  check_heads("attention", q, k, v);
  check_options("attention", q, options);
  const variable_list out = SpanAttention::apply(
      with_adjacent_head_dim(q), with_adjacent_head_dim(k), with_adjacent_head_dim(v),
      optional_sinks(options), flatten(spans), numbers_of(options));
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
  check_options("attention_gradients", q, options);
  check_shape("attention_gradients: grad_out", grad_out, {q.size(0), q.size(1), q.size(2)});
  const at::NoGradGuard no_grad;
  return backward_over(with_adjacent_head_dim(q), with_adjacent_head_dim(k),
                       with_adjacent_head_dim(v),
                       {with_adjacent_head_dim(whole.out), whole.log_sum_exp.contiguous()},
                       with_adjacent_head_dim(grad_out), spans, options);
}

at::Tensor sink_gradients(const AttentionOutput& whole, const at::Tensor& grad_out,
                          const at::Tensor& sinks) {
  if (!sinks.defined()) {
    return {};
  }
  const at::NoGradGuard no_grad;
  const at::Tensor out = with_adjacent_head_dim(whole.out);
  const at::Tensor grad = with_adjacent_head_dim(grad_out);
  const at::Tensor log_sum_exp = whole.log_sum_exp.contiguous();
  const auto type = log_sum_exp.scalar_type();
  const at::Tensor wide_sinks = sinks.to(type).contiguous();
  at::Tensor sums = at::empty(sinks.sizes(), wide_sinks.options());
  visit_float_type(out.scalar_type(), [&](auto zero) {
    using T = decltype(zero);
    using A = Accumulator<T>;
    const AttentionShape shape = shape_of(out, out, {});
    const A* sink = wide_sinks.const_data_ptr<A>();
    A* sum = sums.mutable_data_ptr<A>();
    at::parallel_for(0, shape.heads, 1, [&](int64_t begin, int64_t end) {
      for (int64_t head = begin; head < end; ++head) {
        sum[head] =
            sink_gradient<T>(rows_of<const T>(out), rows_of<const T>(grad),
                             log_sum_exp.const_data_ptr<A>(), sink[head], shape, out.size(0), head);
      }
    });
  });
  return sums.to(sinks.scalar_type());
}

std::optional<at::Tensor> optional_sinks(const AttentionOptions& options) {
  return options.sinks.defined() ? std::optional(options.sinks) : std::nullopt;
}

std::vector<double> numbers_of(const AttentionOptions& options) {
  return {options.scale.value_or(std::nan("")), static_cast<double>(options.window),
          options.softcap};
}

AttentionOptions options_from(const std::vector<double>& numbers) {
  return {.scale = std::isnan(numbers[0]) ? std::nullopt : std::optional<double>(numbers[0]),
          .window = static_cast<int64_t>(numbers[1]),
          .softcap = numbers[2]};
}

at::Tensor attention_with_cache(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                                int64_t first_position, const AttentionOptions& options) {
  check_heads("attention_with_cache", q, k, v);
  check_options("attention_with_cache", q, options);
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
  return q.size(0) <= kFewQueries
             ? decode_over(with_adjacent_head_dim(q), with_adjacent_head_dim(k),
                           with_adjacent_head_dim(v), span, options)
             : forward_over(with_adjacent_head_dim(q), with_adjacent_head_dim(k),
                            with_adjacent_head_dim(v), {span}, options)
                   .out;
}

}  // namespace switchyard
