#include "ops/expert_mlp.h"

#include <optional>

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>

#include "base/error.h"
#include "base/shape.h"
#include "ops/expert_rows.h"
#include "ops/float_types.h"
#include "ops/grouped_gemm.h"
#include "ops/kernel_types.h"
#include "ops/parallel_tasks.h"
#include "ops/row_weights.h"
#include "ops/thread_scratch.h"

namespace switchyard {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

struct Sizes {
  int64_t hidden;
  int64_t ffn;
};

Sizes sizes_of(const at::Tensor& down_weight) {
  return {down_weight.size(1), down_weight.size(2)};
}

// Rows of one expert that one thread takes through the whole MLP.
struct RowBlock {
  int64_t expert;
  int64_t first;
  int64_t rows;
};

// Large blocks pack a weight less often, small ones keep many threads busy. The cut changes no
// bits.
std::vector<RowBlock> row_blocks(const std::vector<int64_t>& rows_per_expert, int64_t received) {
  constexpr int64_t kBlocksPerThread = 8;
  int64_t target = 256;
  while (target > 64 && received / target < kBlocksPerThread * at::get_num_threads()) {
    target /= 2;
  }
  std::vector<RowBlock> blocks;
  for_each_expert(rows_per_expert, [&](int64_t expert, int64_t first, int64_t rows) {
    const int64_t each = even_cut(rows, target);
    for (int64_t done = 0; done < rows; done += each) {
      blocks.push_back({expert, first + done, std::min(each, rows - done)});
    }
  });
  return blocks;
}

// Calls `work(block, gemm workspace, scratch for kGemmRows x columns values)` in parallel.
template <class T, class Work>
void for_each_block_of_rows(const std::vector<int64_t>& rows_per_expert, int64_t received,
                            int64_t columns, Work work) {
  const std::vector<RowBlock> blocks = row_blocks(rows_per_expert, received);
  const auto bytes = kGemmRows * columns * static_cast<int64_t>(sizeof(T));
  run_tasks(static_cast<int64_t>(blocks.size()), [&](int64_t task) {
    auto* scratch = static_cast<char*>(thread_scratch(kGemmWorkspaceBytes + bytes));
    work(blocks[static_cast<size_t>(task)], scratch,
         reinterpret_cast<T*>(scratch + kGemmWorkspaceBytes));
  });
}

// All of a product with at most kGemmRows rows, on this thread.
template <class T>
void multiply_here(const TypedKernels<T>& kernels, const MatrixProduct<T>& product,
                   void* workspace) {
  for_each_block(product, Cut{kGemmRows, kGemmColumns},
                 [&](const MatrixProduct<T>& block) { kernels.gemm(block, workspace); });
}

// The products of one block of rows. T* results, const T* operands; [rows, columns] contiguous.
template <class T>
MatrixProduct<T> times_transposed(const T* rows, const T* weight, T* result, int64_t m, int64_t out,
                                  int64_t in) {
  return {.a = rows,
          .a_stride = in,
          .b = weight,
          .b_stride = in,
          .b_transposed = true,
          .c = result,
          .c_stride = out,
          .m = m,
          .n = out,
          .k = in};
}
template <class T>
MatrixProduct<T> times(const T* rows, const T* weight, T* result, int64_t m, int64_t out,
                       int64_t in) {
  return {.a = rows,
          .a_stride = in,
          .b = weight,
          .b_stride = out,
          .c = result,
          .c_stride = out,
          .m = m,
          .n = out,
          .k = in};
}

struct Forward {
  at::Tensor out;
  at::Tensor gate_up;
};

Forward forward_of(const at::Tensor& rows, const at::Tensor& gate_up_weight,
                   const at::Tensor& down_weight, const at::Tensor& weights,
                   const std::vector<int64_t>& rows_per_expert) {
  const auto [hidden, ffn] = sizes_of(down_weight);
  const int64_t received = rows.size(0);
  Forward result{at::empty({received, hidden}, rows.options()),
                 at::empty({received, 2 * ffn}, rows.options())};
  const RowWeights row_weights(weights);
  visit_kernels(rows.scalar_type(), [&, hidden = hidden, ffn = ffn](const auto& kernels) {
    using T = Value<decltype(kernels)>;
    const T* in = values_of<T>(rows);
    const T* first_weight = values_of<T>(gate_up_weight);
    const T* second_weight = values_of<T>(down_weight);
    T* gate_up = mutable_values_of<T>(result.gate_up);
    T* out = mutable_values_of<T>(result.out);
    for_each_block_of_rows<T>(
        rows_per_expert, received, ffn, [&](const RowBlock& block, void* workspace, T* activated) {
          T* block_gate_up = gate_up + block.first * 2 * ffn;
          multiply_here(kernels,
                        times_transposed(in + block.first * hidden,
                                         first_weight + block.expert * 2 * ffn * hidden,
                                         block_gate_up, block.rows, 2 * ffn, hidden),
                        workspace);
          for (int64_t row = 0; row < block.rows; ++row) {
            kernels.swiglu(block_gate_up + row * 2 * ffn, row_weights[block.first + row], ffn,
                           activated + row * ffn);
          }
          multiply_here(kernels,
                        times_transposed(static_cast<const T*>(activated),
                                         second_weight + block.expert * hidden * ffn,
                                         out + block.first * hidden, block.rows, hidden, ffn),
                        workspace);
        });
  });
  return result;
}

struct RowGradients {
  at::Tensor rows;       // undefined when not needed
  at::Tensor gate_up;    // [received, 2 x ffn]
  at::Tensor weights;    // undefined without weights
  at::Tensor activated;  // not a gradient: what down_weight was multiplied with
};

RowGradients row_gradients_of(const at::Tensor& grad, const at::Tensor& gate_up,
                              const at::Tensor& gate_up_weight, const at::Tensor& down_weight,
                              const at::Tensor& weights,
                              const std::vector<int64_t>& rows_per_expert, bool needs_rows) {
  const auto [hidden, ffn] = sizes_of(down_weight);
  const int64_t received = grad.size(0);
  RowGradients result;
  result.rows = needs_rows ? at::empty({received, hidden}, grad.options()) : at::Tensor();
  result.gate_up = at::empty_like(gate_up);
  result.weights = weights.defined() ? at::empty_like(weights) : at::Tensor();
  result.activated = at::empty({received, ffn}, grad.options());
  const RowWeights row_weights(weights);
  RowWeights weight_gradients(result.weights);
  visit_kernels(grad.scalar_type(), [&, hidden = hidden, ffn = ffn](const auto& kernels) {
    using T = Value<decltype(kernels)>;
    const T* grad_out = values_of<T>(grad);
    const T* saved = values_of<T>(gate_up);
    const T* first_weight = values_of<T>(gate_up_weight);
    const T* second_weight = values_of<T>(down_weight);
    T* grad_gate_up = mutable_values_of<T>(result.gate_up);
    T* activated = mutable_values_of<T>(result.activated);
    T* grad_rows = needs_rows ? mutable_values_of<T>(result.rows) : nullptr;
    for_each_block_of_rows<T>(
        rows_per_expert, received, ffn,
        [&](const RowBlock& block, void* workspace, T* grad_activated) {
          multiply_here(
              kernels,
              times(grad_out + block.first * hidden, second_weight + block.expert * hidden * ffn,
                    grad_activated, block.rows, ffn, hidden),
              workspace);
          for (int64_t row = block.first; row < block.first + block.rows; ++row) {
            const double grad_weight = kernels.swiglu_backward(
                saved + row * 2 * ffn, row_weights[row], grad_activated + (row - block.first) * ffn,
                ffn, grad_gate_up + row * 2 * ffn, activated + row * ffn);
            weight_gradients.set(row, grad_weight);
          }
          if (needs_rows) {
            multiply_here(kernels,
                          times(static_cast<const T*>(grad_gate_up) + block.first * 2 * ffn,
                                first_weight + block.expert * 2 * ffn * hidden,
                                grad_rows + block.first * hidden, block.rows, hidden, 2 * ffn),
                          workspace);
          }
        });
  });
  return result;
}

// Adds left_e^T x right_e for every expert e. left [received, m], right [received, n] -> result
// [num_experts, m, n]
template <class T>
void add_products(const at::Tensor& left, const at::Tensor& right,
                  const std::vector<int64_t>& rows_per_expert, at::Tensor& result,
                  std::vector<MatrixProduct<T>>& products) {
  const int64_t m = left.size(1);
  const int64_t n = right.size(1);
  const T* a = values_of<T>(left);
  const T* b = values_of<T>(right);
  T* c = mutable_values_of<T>(result);
  for_each_expert(rows_per_expert, [&](int64_t expert, int64_t first, int64_t rows) {
    products.push_back({.a = a + first * m,
                        .a_stride = m,
                        .a_transposed = true,
                        .b = b + first * n,
                        .b_stride = n,
                        .c = c + expert * m * n,
                        .c_stride = n,
                        .m = m,
                        .n = n,
                        .k = rows});
  });
}

struct ExpertMlp : torch::autograd::Function<ExpertMlp> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& rows,
                            const at::Tensor& gate_up_weight, const at::Tensor& down_weight,
                            const std::optional<at::Tensor>& given_weights,
                            const std::vector<int64_t>& rows_per_expert) {
    const at::Tensor weights = given_weights.value_or(at::Tensor());
    const Forward result = forward_of(rows, gate_up_weight, down_weight, weights, rows_per_expert);
    ctx->save_for_backward({rows, gate_up_weight, down_weight, weights, result.gate_up});
    ctx->saved_data["rows_per_expert"] = rows_per_expert;
    return result.out;
  }

  static variable_list backward(AutogradContext* ctx, const variable_list& grads) {
    const variable_list saved = ctx->get_saved_variables();
    const at::Tensor& rows = saved[0];
    const at::Tensor& gate_up_weight = saved[1];
    const at::Tensor& down_weight = saved[2];
    const at::Tensor grad = grads[0].contiguous();
    const std::vector<int64_t> rows_per_expert = ctx->saved_data["rows_per_expert"].toIntVector();
    const RowGradients gradients =
        row_gradients_of(grad, saved[4], gate_up_weight, down_weight, saved[3], rows_per_expert,
                         ctx->needs_input_grad(0));
    at::Tensor grad_gate_up_weight;
    at::Tensor grad_down_weight;
    visit_kernels(grad.scalar_type(), [&](const auto& kernels) {
      using T = Value<decltype(kernels)>;
      std::vector<MatrixProduct<T>> products;
      if (ctx->needs_input_grad(1)) {
        grad_gate_up_weight = at::empty_like(gate_up_weight);
        add_products(gradients.gate_up, rows, rows_per_expert, grad_gate_up_weight, products);
      }
      if (ctx->needs_input_grad(2)) {
        grad_down_weight = at::empty_like(down_weight);
        add_products(grad, gradients.activated, rows_per_expert, grad_down_weight, products);
      }
      multiply_all(kernels, std::move(products));
    });
    return {gradients.rows, grad_gate_up_weight, grad_down_weight, gradients.weights, at::Tensor()};
  }
};

void check_same_type(const at::Tensor& rows, std::string_view name, const at::Tensor& weight) {
  check_float_cpu(name, weight);
  check<ShapeError>(rows.scalar_type() == weight.scalar_type(),
                    "{} ({}) must have the dtype of rows ({})", name,
                    c10::toString(weight.scalar_type()), c10::toString(rows.scalar_type()));
}

}  // namespace

at::Tensor expert_mlp(const at::Tensor& rows, const at::Tensor& gate_up_weight,
                      const at::Tensor& down_weight, const at::Tensor& weights,
                      const std::vector<int64_t>& rows_per_expert) {
  check_float_cpu("expert_mlp: rows", rows);
  check_same_type(rows, "expert_mlp: gate_up_weight", gate_up_weight);
  check_same_type(rows, "expert_mlp: down_weight", down_weight);
  check_shape("expert_mlp: rows", rows, {kAnySize, kAnySize});
  const auto num_experts = static_cast<int64_t>(rows_per_expert.size());
  check_shape("expert_mlp: down_weight", down_weight, {num_experts, rows.size(1), kAnySize});
  check_shape("expert_mlp: gate_up_weight", gate_up_weight,
              {num_experts, 2 * down_weight.size(2), rows.size(1)});
  check_rows_per_expert("expert_mlp", rows_per_expert, rows.size(0));
  std::optional<at::Tensor> given_weights;
  if (weights.defined()) {
    check_row_weights("expert_mlp: weights", weights, rows.size(0));
    given_weights = weights.contiguous();
  }
  return ExpertMlp::apply(rows.contiguous(), gate_up_weight.contiguous(), down_weight.contiguous(),
                          given_weights, rows_per_expert);
}

}  // namespace switchyard
