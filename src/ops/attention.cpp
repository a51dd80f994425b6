#include "ops/attention.h"

#include <algorithm>
#include <cmath>
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

AttentionOutput forward_over(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                             const std::vector<AttentionSpan>& spans, double scale,
                             int64_t window) {
  AttentionOutput output{
      at::empty(q.sizes(), q.options()),
      at::empty({q.size(0), q.size(1)}, q.options().dtype(accumulator_type(q.scalar_type())))};
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

// Each sequence attends to itself.
std::vector<AttentionSpan> spans_of(const std::vector<int64_t>& starts) {
  std::vector<AttentionSpan> spans;
  for (size_t i = 0; i + 1 < starts.size(); ++i) {
    const int64_t length = starts[i + 1] - starts[i];
    spans.push_back({.first_query = starts[i],
                     .num_queries = length,
                     .first_key = starts[i],
                     .num_keys = length,
                     .seen_by_first = 1});
  }
  return spans;
}

void zero_padding(const at::Tensor& tensor, int64_t num_real_tokens) {
  if (num_real_tokens < tensor.size(0)) {
    tensor.narrow(0, num_real_tokens, tensor.size(0) - num_real_tokens).zero_();
  }
}

struct PackedAttention : torch::autograd::Function<PackedAttention> {
  static variable_list forward(AutogradContext* ctx, const at::Tensor& q, const at::Tensor& k,
                               const at::Tensor& v, const std::vector<int64_t>& starts,
                               double scale, int64_t window) {
    const AttentionOutput output = forward_over(q, k, v, spans_of(starts), scale, window);
    zero_padding(output.out, starts.back());
    zero_padding(output.log_sum_exp, starts.back());
    ctx->save_for_backward({q, k, v, output.out, output.log_sum_exp});
    ctx->saved_data["starts"] = starts;
    ctx->saved_data["scale"] = scale;
    ctx->saved_data["window"] = window;
    ctx->mark_non_differentiable({output.log_sum_exp});
    return {output.out, output.log_sum_exp};
  }

  static variable_list backward(AutogradContext* ctx, const variable_list& grads) {
    const variable_list saved = ctx->get_saved_variables();
    const at::Tensor& q = saved[0];
    const at::Tensor& k = saved[1];
    const at::Tensor grad_out = with_adjacent_head_dim(grads[0]);
    const std::vector<int64_t> starts = ctx->saved_data["starts"].toIntVector();
    at::Tensor grad_q = at::empty(q.sizes(), q.options());
    at::Tensor grad_k = at::empty(k.sizes(), k.options());
    at::Tensor grad_v = at::empty(k.sizes(), k.options());
    visit_float_type(q.scalar_type(), [&](auto type) {
      using T = decltype(type);
      attention_backward(
          AttentionBackwardArrays<T>{rows_of<const T>(q), rows_of<const T>(k),
                                     rows_of<const T>(saved[2]), rows_of<const T>(saved[3]),
                                     rows_of<const T>(grad_out),
                                     saved[4].const_data_ptr<Accumulator<T>>(), rows_of<T>(grad_q),
                                     rows_of<T>(grad_k), rows_of<T>(grad_v)},
          shape_of(q, k, ctx->saved_data["scale"].toDouble(), ctx->saved_data["window"].toInt()),
          spans_of(starts));
    });
    for (const at::Tensor& grad : {grad_q, grad_k, grad_v}) {
      zero_padding(grad, starts.back());
    }
    return {grad_q, grad_k, grad_v, {}, {}, {}};
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

AttentionOutput attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                          const SequenceTable& table, const AttentionOptions& options) {
  check_heads("attention", q, k, v);
  check_window("attention", options.window);
  check<ShapeError>(q.size(0) == table.num_tokens && k.size(0) == table.num_tokens,
                    "attention: q has {} tokens and k {}, the sequence table has {}", q.size(0),
                    k.size(0), table.num_tokens);
  const variable_list out = PackedAttention::apply(
      with_adjacent_head_dim(q), with_adjacent_head_dim(k), with_adjacent_head_dim(v), table.starts,
      scale_of(q, options), options.window);
  return {out[0], out[1]};
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
