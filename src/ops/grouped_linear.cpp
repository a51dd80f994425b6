#include "ops/grouped_linear.h"

#include <numeric>

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>

#include "base/error.h"
#include "base/shape.h"
#include "ops/float_types.h"

namespace switchyard {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// Calls `work(expert, rows of the expert from, to)` for experts with rows.
template <class Work>
void for_each_expert(const std::vector<int64_t>& rows_per_expert, Work work) {
  int64_t begin = 0;
  for (size_t expert = 0; expert < rows_per_expert.size(); ++expert) {
    const int64_t end = begin + rows_per_expert[expert];
    if (end > begin) {
      work(static_cast<int64_t>(expert), begin, end);
    }
    begin = end;
  }
}

struct GroupedLinear : torch::autograd::Function<GroupedLinear> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& rows, const at::Tensor& weight,
                            const std::vector<int64_t>& rows_per_expert) {
    ctx->save_for_backward({rows, weight});
    ctx->saved_data["rows_per_expert"] = rows_per_expert;
    at::Tensor out = at::empty({rows.size(0), weight.size(1)}, rows.options());
    for_each_expert(rows_per_expert, [&](int64_t expert, int64_t begin, int64_t end) {
      at::Tensor out_rows = out.slice(0, begin, end);
      at::mm_out(out_rows, rows.slice(0, begin, end), weight[expert].t());
    });
    return out;
  }

  static variable_list backward(AutogradContext* ctx, const variable_list& grads) {
    const variable_list saved = ctx->get_saved_variables();
    const at::Tensor& rows = saved[0];
    const at::Tensor& weight = saved[1];
    const std::vector<int64_t> rows_per_expert = ctx->saved_data["rows_per_expert"].toIntVector();
    const at::Tensor grad = grads[0].contiguous();
    at::Tensor grad_rows = at::empty_like(rows);
    at::Tensor grad_weight = at::zeros_like(weight);
    for_each_expert(rows_per_expert, [&](int64_t expert, int64_t begin, int64_t end) {
      const at::Tensor grad_out = grad.slice(0, begin, end);
      at::Tensor grad_rows_out = grad_rows.slice(0, begin, end);
      at::mm_out(grad_rows_out, grad_out, weight[expert]);
      at::Tensor grad_weight_out = grad_weight[expert];
      at::mm_out(grad_weight_out, grad_out.t(), rows.slice(0, begin, end));
    });
    return {grad_rows, grad_weight, {}};
  }
};

}  // namespace

at::Tensor grouped_linear(const at::Tensor& rows, const at::Tensor& weight,
                          const std::vector<int64_t>& rows_per_expert) {
  check_float_cpu("grouped_linear: rows", rows);
  check_float_cpu("grouped_linear: weight", weight);
  check<ShapeError>(rows.scalar_type() == weight.scalar_type(),
                    "grouped_linear: rows ({}) and weight ({}) must have the same dtype",
                    c10::toString(rows.scalar_type()), c10::toString(weight.scalar_type()));
  check_shape("grouped_linear: rows", rows, {kAnySize, kAnySize});
  const auto num_experts = static_cast<int64_t>(rows_per_expert.size());
  check_shape("grouped_linear: weight", weight, {num_experts, kAnySize, rows.size(1)});
  int64_t total = 0;
  for (const int64_t count : rows_per_expert) {
    check<ShapeError>(count >= 0, "grouped_linear: rows_per_expert must not be negative, got {}",
                      count);
    total += count;
  }
  check<ShapeError>(total == rows.size(0),
                    "grouped_linear: rows_per_expert adds up to {}, but there are {} rows", total,
                    rows.size(0));
  return GroupedLinear::apply(rows.contiguous(), weight.contiguous(), rows_per_expert);
}

}  // namespace switchyard
