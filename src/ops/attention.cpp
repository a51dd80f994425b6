#include "ops/attention.h"

#include <cmath>
#include <limits>
#include <vector>

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>

#include "base/error.h"
#include "base/shape.h"
#include "ops/float_types.h"

namespace switchyard {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// Neighbouring sequences of one length: one call of the kernel serves them.
struct Run {
  int64_t start;  // first token
  int64_t num_sequences;
  int64_t length;  // of each sequence
};

std::vector<Run> equal_runs(const std::vector<int64_t>& starts) {
  std::vector<Run> runs;
  for (size_t i = 0; i + 1 < starts.size(); ++i) {
    const int64_t length = starts[i + 1] - starts[i];
    if (!runs.empty() && runs.back().length == length) {
      ++runs.back().num_sequences;
    } else {
      runs.push_back({starts[i], 1, length});
    }
  }
  return runs;
}

// The run's tokens of a [tokens, heads, head_dim] tensor as [sequences, heads, length, head_dim].
at::Tensor by_sequence(const at::Tensor& tensor, const Run& run) {
  return tensor.narrow(0, run.start, run.num_sequences * run.length)
      .unflatten(0, {run.num_sequences, run.length})
      .transpose(1, 2);
}

// One copy of each kv head for each query head that reads it.
at::Tensor expand_heads(const at::Tensor& tensor, int64_t group) {
  if (group == 1) {
    return tensor;
  }
  const int64_t kv_heads = tensor.size(1);
  return tensor.unsqueeze(2)
      .expand({tensor.size(0), kv_heads, group, tensor.size(2)})
      .reshape({tensor.size(0), kv_heads * group, tensor.size(2)});
}

at::Tensor sum_groups(const at::Tensor& grad, int64_t group) {
  if (group == 1) {
    return grad;
  }
  const at::Tensor grouped = grad.unflatten(1, {grad.size(1) / group, group});
  at::Tensor sum = grouped.select(2, 0).to(accumulator_type(grad.scalar_type()));
  for (int64_t head = 1; head < group; ++head) {
    sum = sum + grouped.select(2, head);
  }
  return sum.to(grad.scalar_type());
}

struct PackedAttention : torch::autograd::Function<PackedAttention> {
  static variable_list forward(AutogradContext* ctx, const at::Tensor& q, const at::Tensor& k,
                               const at::Tensor& v, const std::vector<int64_t>& starts,
                               double scale) {
    const int64_t group = q.size(1) / k.size(1);
    const at::Tensor keys = expand_heads(k, group);
    const at::Tensor values = expand_heads(v, group);
    at::Tensor out = at::zeros(q.sizes(), q.options());
    at::Tensor log_sum_exp =
        at::zeros({q.size(0), q.size(1)}, q.options().dtype(accumulator_type(q.scalar_type())));
    for (const Run& run : equal_runs(starts)) {
      const auto [run_out, run_log_sum_exp] = at::_scaled_dot_product_flash_attention_for_cpu(
          by_sequence(q, run), by_sequence(keys, run), by_sequence(values, run), 0.0,
          /*is_causal=*/true, {}, scale);
      by_sequence(out, run).copy_(run_out);
      by_sequence(log_sum_exp.unsqueeze(2), run).squeeze(3).copy_(run_log_sum_exp);
    }
    ctx->save_for_backward({q, k, v, out, log_sum_exp});
    ctx->saved_data["starts"] = starts;
    ctx->saved_data["scale"] = scale;
    ctx->mark_non_differentiable({log_sum_exp});
    return {out, log_sum_exp};
  }

  static variable_list backward(AutogradContext* ctx, const variable_list& grads) {
    const variable_list saved = ctx->get_saved_variables();
    const at::Tensor& q = saved[0];
    const int64_t group = q.size(1) / saved[1].size(1);
    const at::Tensor k = expand_heads(saved[1], group);
    const at::Tensor v = expand_heads(saved[2], group);
    at::Tensor grad_q = at::zeros(q.sizes(), q.options());
    at::Tensor grad_k = at::zeros(k.sizes(), k.options());
    at::Tensor grad_v = at::zeros(v.sizes(), v.options());
    for (const Run& run : equal_runs(ctx->saved_data["starts"].toIntVector())) {
      const auto [run_q, run_k, run_v] = at::_scaled_dot_product_flash_attention_for_cpu_backward(
          by_sequence(grads[0], run), by_sequence(q, run), by_sequence(k, run), by_sequence(v, run),
          by_sequence(saved[3], run), by_sequence(saved[4].unsqueeze(2), run).squeeze(3), 0.0,
          /*is_causal=*/true, {}, ctx->saved_data["scale"].toDouble());
      by_sequence(grad_q, run).copy_(run_q);
      by_sequence(grad_k, run).copy_(run_k);
      by_sequence(grad_v, run).copy_(run_v);
    }
    return {grad_q, sum_groups(grad_k, group), sum_groups(grad_v, group), {}, {}};
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

double scale_of(const at::Tensor& q, const AttentionOptions& options) {
  return options.scale.value_or(1.0 / std::sqrt(static_cast<double>(q.size(2))));
}

}  // namespace

AttentionOutput attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                          const SequenceTable& table, const AttentionOptions& options) {
  check_heads("attention", q, k, v);
  check<ShapeError>(q.size(0) == table.num_tokens && k.size(0) == table.num_tokens,
                    "attention: q has {} tokens and k {}, the sequence table has {}", q.size(0),
                    k.size(0), table.num_tokens);
  const variable_list out = PackedAttention::apply(q, k, v, table.starts, scale_of(q, options));
  return {out[0], out[1]};
}

at::Tensor attention_with_cache(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                                int64_t first_position, const AttentionOptions& options) {
  check_heads("attention_with_cache", q, k, v);
  check<ShapeError>(first_position >= 0 && first_position + q.size(0) <= k.size(0),
                    "attention_with_cache: {} new tokens from position {} on need as many keys, "
                    "got {}",
                    q.size(0), first_position, k.size(0));
  const at::NoGradGuard no_grad;
  const int64_t group = q.size(1) / k.size(1);
  const int64_t keys = first_position + q.size(0);
  const at::ScalarType type = accumulator_type(q.scalar_type());
  const auto by_head = [&](const at::Tensor& tensor) {  // [kv_heads, 1, keys, head_dim]
    return tensor.narrow(0, 0, keys).to(type).transpose(0, 1).unsqueeze(1);
  };
  const at::Tensor queries = q.to(type).transpose(0, 1).unflatten(0, {k.size(1), group});
  at::Tensor scores = at::matmul(queries * scale_of(q, options), by_head(k).transpose(2, 3));
  const at::Tensor future =
      at::arange(keys).unsqueeze(0) >
      (at::arange(q.size(0)) + first_position).unsqueeze(1);  // [new_tokens, keys]
  scores.masked_fill_(future, -std::numeric_limits<double>::infinity());
  const at::Tensor out = at::matmul(at::softmax(scores, -1), by_head(v));
  return out.flatten(0, 1).transpose(0, 1).to(q.scalar_type()).contiguous();
}

}  // namespace switchyard
