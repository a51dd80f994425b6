#include "ops/permute.h"

#include <algorithm>
#include <cstring>

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <torch/csrc/autograd/custom_function.h>

#include "base/error.h"
#include "base/shape.h"
#include "ops/float_types.h"
#include "ops/kernel_types.h"

namespace switchyard {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// Enough bytes to be worth waking another thread.
constexpr int64_t kBytesPerTask = 1 << 16;

int64_t rows_per_task(int64_t bytes_per_row) {
  return 1 + kBytesPerTask / std::max<int64_t>(bytes_per_row, 1);
}

void check_indices(std::string_view name, const at::Tensor& indices) {
  check<ShapeError>(indices.defined() && indices.device().is_cpu(), "{} must be on the CPU", name);
  check<ShapeError>(indices.scalar_type() == at::kLong && indices.is_contiguous(),
                    "{} must be contiguous int64", name);
}

void check_order(const ExpertOrder& order) {
  check_indices("token_of_row", order.token_of_row);
  check_indices("row_of_copy", order.row_of_copy);
  check_shape("token_of_row", order.token_of_row, {kAnySize});
  check_shape("row_of_copy", order.row_of_copy, {kAnySize, kAnySize});
}

// out[i] = in[index[i]], row by row; zero where index[i] is -1. `check_row(i, index[i])` throws for
// an index that is wrong.
template <class CheckRow>
at::Tensor gather_rows(const at::Tensor& in, const at::Tensor& index, CheckRow check_row) {
  std::vector<int64_t> sizes = in.sizes().vec();
  sizes[0] = index.numel();
  at::Tensor out = at::empty(sizes, in.options());
  const at::Tensor source = in.contiguous();
  const int64_t bytes = index.numel() == 0
                            ? 0
                            : out.numel() / index.numel() * static_cast<int64_t>(in.element_size());
  const auto* from = static_cast<const char*>(source.const_data_ptr());
  auto* to = static_cast<char*>(out.mutable_data_ptr());
  const auto* row_of = index.const_data_ptr<int64_t>();
  at::parallel_for(0, index.numel(), rows_per_task(bytes), [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      check_row(row, row_of[row]);
      if (row_of[row] < 0) {
        std::memset(to + row * bytes, 0, static_cast<size_t>(bytes));
        continue;
      }
      std::memcpy(to + row * bytes, from + row_of[row] * bytes, static_cast<size_t>(bytes));
    }
  });
  return out;
}

at::Tensor copy_to_rows(const at::Tensor& tokens, const at::Tensor& token_of_row) {
  const int64_t num_tokens = tokens.size(0);
  return gather_rows(tokens, token_of_row, [num_tokens](int64_t row, int64_t token) {
    check<ShapeError>(token >= -1 && token < num_tokens,
                      "token_of_row[{}] is {}, but there are {} tokens", row, token, num_tokens);
  });
}

// [copies, hidden] -> [tokens, hidden]
at::Tensor sum_slots(const at::Tensor& rows, const at::Tensor& row_of_copy) {
  const int64_t tokens = row_of_copy.size(0);
  const int64_t k = row_of_copy.size(1);
  const int64_t hidden = rows.size(1);
  at::Tensor out = at::empty({tokens, hidden}, rows.options());
  const at::Tensor source = rows.contiguous();
  const auto* row_of = row_of_copy.const_data_ptr<int64_t>();
  visit_kernels(rows.scalar_type(), [&](const auto& kernels) {
    using T = Value<decltype(kernels)>;
    const T* from = values_of<T>(source);
    T* to = mutable_values_of<T>(out);
    const int64_t grain = rows_per_task(k * hidden * static_cast<int64_t>(sizeof(T)));
    at::parallel_for(0, tokens, grain, [&](int64_t begin, int64_t end) {
      for (int64_t token = begin; token < end; ++token) {
        kernels.sum_rows(from, row_of + token * k, k, hidden, to + token * hidden);
      }
    });
  });
  return out;
}

// Calls `move(copy, row)` for every copy that has a row.
template <class Move>
void for_each_copy(const at::Tensor& row_of_copy, Move move) {
  const auto* row_of = row_of_copy.const_data_ptr<int64_t>();
  for (int64_t copy = 0; copy < row_of_copy.numel(); ++copy) {
    if (row_of[copy] >= 0) {
      move(copy, row_of[copy]);
    }
  }
}

struct Permute : torch::autograd::Function<Permute> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& tokens,
                            const at::Tensor& token_of_row, const at::Tensor& row_of_copy) {
    ctx->save_for_backward({row_of_copy});
    return copy_to_rows(tokens, token_of_row);
  }
  static variable_list backward(AutogradContext* ctx, const variable_list& grads) {
    return {sum_slots(grads[0], ctx->get_saved_variables()[0]), {}, {}};
  }
};

struct Combine : torch::autograd::Function<Combine> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& rows,
                            const at::Tensor& token_of_row, const at::Tensor& row_of_copy) {
    ctx->save_for_backward({token_of_row});
    return sum_slots(rows, row_of_copy);
  }
  static variable_list backward(AutogradContext* ctx, const variable_list& grads) {
    return {copy_to_rows(grads[0], ctx->get_saved_variables()[0]), {}, {}};
  }
};

struct PermuteWeights : torch::autograd::Function<PermuteWeights> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& weights,
                            const at::Tensor& row_of_copy, int64_t copies) {
    ctx->save_for_backward({row_of_copy});
    at::Tensor out = at::zeros({copies}, weights.options());
    const at::Tensor source = weights.contiguous();
    visit_float_type(weights.scalar_type(), [&](auto type) {
      using T = decltype(type);
      const auto* from = source.const_data_ptr<T>();
      auto* to = out.mutable_data_ptr<T>();
      for_each_copy(row_of_copy, [&](int64_t copy, int64_t row) { to[row] = from[copy]; });
    });
    return out;
  }
  static variable_list backward(AutogradContext* ctx, const variable_list& grads) {
    const at::Tensor row_of_copy = ctx->get_saved_variables()[0];
    const at::Tensor grad = grads[0].contiguous();
    at::Tensor out = at::zeros(row_of_copy.sizes(), grad.options());
    visit_float_type(grad.scalar_type(), [&](auto type) {
      using T = decltype(type);
      const auto* from = grad.const_data_ptr<T>();
      auto* to = out.mutable_data_ptr<T>();
      for_each_copy(row_of_copy, [&](int64_t copy, int64_t row) { to[copy] = from[row]; });
    });
    return {out, {}, {}};
  }
};

struct ReorderRows : torch::autograd::Function<ReorderRows> {
  static at::Tensor reorder(const at::Tensor& rows, const at::Tensor& row_of_output,
                            const at::Tensor& inverse) {
    const int64_t received = rows.size(0);
    const auto* inverse_of = inverse.const_data_ptr<int64_t>();
    return gather_rows(rows, row_of_output, [=](int64_t output, int64_t row) {
      check<ShapeError>(row >= 0 && row < received && inverse_of[row] == output,
                        "reorder_rows: row_of_output[{}] is {}, which `inverse` does not undo",
                        output, row);
    });
  }
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& rows,
                            const at::Tensor& row_of_output, const at::Tensor& inverse) {
    ctx->save_for_backward({inverse, row_of_output});
    return reorder(rows, row_of_output, inverse);
  }
  static variable_list backward(AutogradContext* ctx, const variable_list& grads) {
    const variable_list saved = ctx->get_saved_variables();
    return {reorder(grads[0], saved[0], saved[1]), {}, {}};
  }
};

// Counting sort of the copies whose id, less first_expert, is below num_experts.
ExpertOrder sort_copies(const at::Tensor& expert_ids, int64_t first_expert, int64_t num_experts,
                        const std::vector<int64_t>& empty_rows) {
  check<ShapeError>(empty_rows.empty() || static_cast<int64_t>(empty_rows.size()) == num_experts,
                    "empty_rows must have one number per expert ({}), got {}", num_experts,
                    empty_rows.size());
  const at::Tensor ids = expert_ids.contiguous();
  const auto* id_of = ids.const_data_ptr<int64_t>();
  const int64_t num_copies = ids.numel();
  const int64_t k = ids.size(1);
  const auto is_here = [=](int64_t id) {
    return id >= first_expert && id - first_expert < num_experts;
  };

  ExpertOrder order;
  order.rows_per_expert.assign(static_cast<size_t>(num_experts), 0);
  for (int64_t copy = 0; copy < num_copies; ++copy) {
    if (is_here(id_of[copy])) {
      ++order.rows_per_expert[static_cast<size_t>(id_of[copy] - first_expert)];
    }
  }
  for (size_t expert = 0; expert < empty_rows.size(); ++expert) {
    order.rows_per_expert[expert] += empty_rows[expert];
  }
  std::vector<int64_t> next_row(static_cast<size_t>(num_experts) + 1, 0);
  for (size_t expert = 0; expert < order.rows_per_expert.size(); ++expert) {
    next_row[expert + 1] = next_row[expert] + order.rows_per_expert[expert];
  }
  order.token_of_row = empty_rows.empty() ? at::empty({next_row.back()}, ids.options())
                                          : at::full({next_row.back()}, -1, ids.options());
  order.row_of_copy = at::empty(ids.sizes(), ids.options());
  auto* token_of = order.token_of_row.mutable_data_ptr<int64_t>();
  auto* row_of = order.row_of_copy.mutable_data_ptr<int64_t>();
  for (int64_t token = 0; token < ids.size(0); ++token) {
    for (int64_t copy = token * k; copy < (token + 1) * k; ++copy) {
      if (!is_here(id_of[copy])) {
        row_of[copy] = -1;
        continue;
      }
      const int64_t row = next_row[static_cast<size_t>(id_of[copy] - first_expert)]++;
      row_of[copy] = row;
      token_of[row] = token;
    }
  }
  return order;
}

void check_expert_ids(const at::Tensor& expert_ids) {
  check<ShapeError>(
      expert_ids.defined() && expert_ids.device().is_cpu() && expert_ids.scalar_type() == at::kLong,
      "expert_ids must be int64 on the CPU");
  check_shape("expert_ids", expert_ids, {kAnySize, kAnySize});
}

}  // namespace

ExpertOrder expert_order(const at::Tensor& expert_ids, int64_t num_experts,
                         const std::vector<int64_t>& empty_rows) {
  check_expert_ids(expert_ids);
  const at::Tensor ids = expert_ids.contiguous();
  const auto* id_of = ids.const_data_ptr<int64_t>();
  for (int64_t copy = 0; copy < ids.numel(); ++copy) {
    check<ShapeError>(id_of[copy] >= -1 && id_of[copy] < num_experts,
                      "expert_ids must be 0 to {}, or -1, got {}", num_experts - 1, id_of[copy]);
  }
  return sort_copies(ids, 0, num_experts, empty_rows);
}

ExpertOrder local_expert_order(const at::Tensor& expert_ids, int64_t first_expert,
                               int64_t num_local_experts, const std::vector<int64_t>& empty_rows) {
  check_expert_ids(expert_ids);
  return sort_copies(expert_ids, first_expert, num_local_experts, empty_rows);
}

at::Tensor permute(const at::Tensor& tokens, const ExpertOrder& order) {
  check_order(order);
  check_float_cpu("permute: tokens", tokens);
  check_shape("permute: tokens", tokens, {order.row_of_copy.size(0), kAnySize});
  return Permute::apply(tokens, order.token_of_row, order.row_of_copy);
}

at::Tensor combine(const at::Tensor& rows, const ExpertOrder& order) {
  check_order(order);
  check_float_cpu("combine: rows", rows);
  check_shape("combine: rows", rows, {order.token_of_row.size(0), kAnySize});
  return Combine::apply(rows, order.token_of_row, order.row_of_copy);
}

at::Tensor permute_weights(const at::Tensor& weights, const ExpertOrder& order) {
  check_order(order);
  check_float_cpu("permute_weights: weights", weights);
  check_shape("permute_weights: weights", weights,
              {order.row_of_copy.size(0), order.row_of_copy.size(1)});
  return PermuteWeights::apply(weights, order.row_of_copy, order.token_of_row.size(0));
}

at::Tensor reorder_rows(const at::Tensor& rows, const at::Tensor& row_of_output,
                        const at::Tensor& inverse) {
  check_float_cpu("reorder_rows: rows", rows);
  check<ShapeError>(rows.dim() >= 1, "reorder_rows: rows must have at least one dimension");
  check_indices("reorder_rows: row_of_output", row_of_output);
  check_indices("reorder_rows: inverse", inverse);
  check_shape("reorder_rows: row_of_output", row_of_output, {rows.size(0)});
  check_shape("reorder_rows: inverse", inverse, {rows.size(0)});
  return ReorderRows::apply(rows, row_of_output, inverse);
}

}  // namespace switchyard
