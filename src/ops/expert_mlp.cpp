#include "ops/expert_mlp.h"

#include <optional>

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>

#include "base/error.h"
#include "base/shape.h"
#include "ops/activation.h"
#include "ops/deferred_gradients.h"
#include "ops/expert_rows.h"
#include "ops/float_types.h"
#include "ops/grouped_gemm.h"
#include "ops/kernel_types.h"
#include "ops/parallel_tasks.h"
#include "ops/row_weights.h"
#include "ops/saved_function.h"
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

// All inputs; biases and weights may be undefined.
struct Inputs {
  at::Tensor rows;
  at::Tensor up_weight;
  at::Tensor down_weight;
  at::Tensor weights;
  at::Tensor up_bias;
  at::Tensor down_bias;
};

// What is not a tensor.
struct Shape {
  MlpFunction function;
  int64_t first_biased_column;
  std::vector<int64_t> rows_per_expert;
};

struct Forward {
  at::Tensor out;
  at::Tensor up;  // the activation's input
};

// The biases of one expert's rows.
template <class T>
class Biases {
 public:
  Biases(const TypedKernels<T>& kernels, const at::Tensor& bias)
      : kernels_(kernels),
        values_(bias.defined() ? values_of<T>(bias) : nullptr),
        width_(bias.defined() ? bias.size(1) : 0) {}

  bool exist() const { return values_ != nullptr; }
  // to += scale x bias of the expert
  void add(int64_t expert, double scale, T* to) const {
    kernels_.add_scaled(values_ + expert * width_, scale, width_, to);
  }
  double dot(int64_t expert, const T* with) const {
    return kernels_.dot(values_ + expert * width_, with, width_);
  }

 private:
  const TypedKernels<T>& kernels_;
  const T* values_;
  int64_t width_;
};

Forward forward_of(const Inputs& inputs, const Shape& shape) {
  const auto [hidden, ffn] = sizes_of(inputs.down_weight);
  const int64_t received = inputs.rows.size(0);
  const int64_t up_width = inputs.up_weight.size(1);
  Forward result{at::empty({received, hidden}, inputs.rows.options()),
                 at::empty({received, up_width}, inputs.rows.options())};
  const RowWeights row_weights(inputs.weights);
  visit_kernels(inputs.rows.scalar_type(), [&, hidden = hidden, ffn = ffn](const auto& kernels) {
    using T = Value<decltype(kernels)>;
    const auto activate = kernels.activation(shape.function).forward;
    const Biases<T> up_bias(kernels, inputs.up_bias);
    const Biases<T> down_bias(kernels, inputs.down_bias);
    const T* in = values_of<T>(inputs.rows);
    const T* first_weight = values_of<T>(inputs.up_weight);
    const T* second_weight = values_of<T>(inputs.down_weight);
    T* up = mutable_values_of<T>(result.up);
    T* out = mutable_values_of<T>(result.out);
    for_each_block_of_rows<T>(
        shape.rows_per_expert, received, ffn,
        [&](const RowBlock& block, void* workspace, T* activated) {
          T* block_up = up + block.first * up_width;
          T* block_out = out + block.first * hidden;
          multiply_here(kernels,
                        times_transposed(in + block.first * hidden,
                                         first_weight + block.expert * up_width * hidden, block_up,
                                         block.rows, up_width, hidden),
                        workspace);
          for (int64_t row = 0; row < block.rows; ++row) {
            if (up_bias.exist()) {
              up_bias.add(block.expert, 1, block_up + row * up_width);
            }
            activate(block_up + row * up_width, row_weights[block.first + row], ffn,
                     activated + row * ffn, shape.function);
          }
          multiply_here(kernels,
                        times_transposed(static_cast<const T*>(activated),
                                         second_weight + block.expert * hidden * ffn, block_out,
                                         block.rows, hidden, ffn),
                        workspace);
          for (int64_t row = 0; down_bias.exist() && row < block.rows; ++row) {
            down_bias.add(block.expert, row_weights[block.first + row],
                          block_out + row * hidden + shape.first_biased_column);
          }
        });
  });
  return result;
}

struct RowGradients {
  at::Tensor rows;       // undefined when not needed
  at::Tensor up;         // [received, columns of up_weight]
  at::Tensor weights;    // undefined without weights
  at::Tensor activated;  // not a gradient: what down_weight was multiplied with
};

RowGradients row_gradients_of(const at::Tensor& grad, const at::Tensor& up, const Inputs& inputs,
                              const Shape& shape, bool needs_rows) {
  const auto [hidden, ffn] = sizes_of(inputs.down_weight);
  const int64_t received = grad.size(0);
  const int64_t up_width = up.size(1);
  RowGradients result;
  result.rows = needs_rows ? at::empty({received, hidden}, grad.options()) : at::Tensor();
  result.up = at::empty_like(up);
  result.weights = inputs.weights.defined() ? at::empty_like(inputs.weights) : at::Tensor();
  result.activated = at::empty({received, ffn}, grad.options());
  const RowWeights row_weights(inputs.weights);
  RowWeights weight_gradients(result.weights);
  visit_kernels(grad.scalar_type(), [&, hidden = hidden, ffn = ffn](const auto& kernels) {
    using T = Value<decltype(kernels)>;
    const auto activate_backward = kernels.activation(shape.function).backward;
    const Biases<T> down_bias(kernels, inputs.down_bias);
    const T* grad_out = values_of<T>(grad);
    const T* saved = values_of<T>(up);
    const T* first_weight = values_of<T>(inputs.up_weight);
    const T* second_weight = values_of<T>(inputs.down_weight);
    T* grad_up = mutable_values_of<T>(result.up);
    T* activated = mutable_values_of<T>(result.activated);
    T* grad_rows = needs_rows ? mutable_values_of<T>(result.rows) : nullptr;
    for_each_block_of_rows<T>(
        shape.rows_per_expert, received, ffn,
        [&](const RowBlock& block, void* workspace, T* grad_activated) {
          multiply_here(
              kernels,
              times(grad_out + block.first * hidden, second_weight + block.expert * hidden * ffn,
                    grad_activated, block.rows, ffn, hidden),
              workspace);
          for (int64_t row = block.first; row < block.first + block.rows; ++row) {
            double grad_weight =
                activate_backward(saved + row * up_width, row_weights[row],
                                  grad_activated + (row - block.first) * ffn, ffn,
                                  grad_up + row * up_width, activated + row * ffn, shape.function);
            if (down_bias.exist()) {
              grad_weight +=
                  down_bias.dot(block.expert, grad_out + row * hidden + shape.first_biased_column);
            }
            weight_gradients.set(row, grad_weight);
          }
          if (needs_rows) {
            multiply_here(kernels,
                          times(static_cast<const T*>(grad_up) + block.first * up_width,
                                first_weight + block.expert * up_width * hidden,
                                grad_rows + block.first * hidden, block.rows, hidden, up_width),
                          workspace);
          }
        });
  });
  return result;
}

// The gradient of a bias: for each expert the sum over its rows of row_weight x grad, columns
// first_column and following. grad [received, columns], like [num_experts, width]
at::Tensor bias_gradient_of(const at::Tensor& grad, const at::Tensor& like, int64_t first_column,
                            const at::Tensor& weights,
                            const std::vector<int64_t>& rows_per_expert) {
  at::Tensor result = at::empty_like(like);
  const RowWeights row_weights(weights);
  const int64_t width = like.size(1);
  const int64_t columns = grad.size(1);
  std::vector<RowBlock> experts;
  for_each_expert(rows_per_expert, [&](int64_t expert, int64_t first, int64_t rows) {
    experts.push_back({expert, first, rows});
  });
  visit_kernels(grad.scalar_type(), [&](const auto& kernels) {
    using T = Value<decltype(kernels)>;
    const T* from = values_of<T>(grad);
    T* to = mutable_values_of<T>(result);
    run_tasks(static_cast<int64_t>(experts.size()), [&](int64_t task) {
      const RowBlock& expert = experts[static_cast<size_t>(task)];
      std::vector<Sum<T>> sums(static_cast<size_t>(width), 0);
      for (int64_t row = expert.first; row < expert.first + expert.rows; ++row) {
        kernels.add_scaled_to_sums(from + row * columns + first_column, row_weights[row], width,
                                   sums.data());
      }
      kernels.round_to(sums.data(), width, to + expert.expert * width);
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

// For each expert left^T x right, like `weight`.
struct WeightProduct {
  at::Tensor left;    // [received, m]
  at::Tensor right;   // [received, n]
  at::Tensor weight;  // [num_experts, m, n] or undefined: not wanted
};

// [num_experts, m, n] of each, undefined where it is not wanted. All are made side by side.
variable_list weight_gradients_of(const std::vector<WeightProduct>& wanted,
                                  const std::vector<int64_t>& rows_per_expert) {
  variable_list results(wanted.size());
  visit_kernels(wanted[0].left.scalar_type(), [&](const auto& kernels) {
    using T = Value<decltype(kernels)>;
    std::vector<MatrixProduct<T>> products;
    for (size_t i = 0; i < wanted.size(); ++i) {
      if (wanted[i].weight.defined()) {
        results[i] = at::empty_like(wanted[i].weight);
        add_products(wanted[i].left, wanted[i].right, rows_per_expert, results[i], products);
      }
    }
    multiply_all(kernels, std::move(products));
  });
  return results;
}

std::optional<at::Tensor> given(const at::Tensor& tensor) {
  return tensor.defined() ? std::optional(tensor.contiguous()) : std::nullopt;
}

struct ExpertMlp : torch::autograd::Function<ExpertMlp> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& rows,
                            const at::Tensor& up_weight, const at::Tensor& down_weight,
                            const std::optional<at::Tensor>& weights,
                            const std::optional<at::Tensor>& up_bias,
                            const std::optional<at::Tensor>& down_bias, const Shape& shape) {
    const Inputs inputs{rows,
                        up_weight,
                        down_weight,
                        weights.value_or(at::Tensor()),
                        up_bias.value_or(at::Tensor()),
                        down_bias.value_or(at::Tensor())};
    const Forward result = forward_of(inputs, shape);
    ctx->save_for_backward({rows, up_weight, down_weight, inputs.weights, inputs.up_bias,
                            inputs.down_bias, result.up});
    ctx->saved_data["rows_per_expert"] = shape.rows_per_expert;
    save_function(ctx, shape.function);
    ctx->saved_data["first_biased_column"] = shape.first_biased_column;
    return result.out;
  }

  static Shape shape_of(const AutogradContext* ctx) {
    const auto& saved = ctx->saved_data;
    return {saved_function(ctx), saved.at("first_biased_column").toInt(),
            saved.at("rows_per_expert").toIntVector()};
  }

  static variable_list backward(AutogradContext* ctx, const variable_list& grads) {
    const variable_list saved = ctx->get_saved_variables();
    const Inputs inputs{saved[0], saved[1], saved[2], saved[3], saved[4], saved[5]};
    const Shape shape = shape_of(ctx);
    const at::Tensor grad = grads[0].contiguous();
    const RowGradients gradients =
        row_gradients_of(grad, saved[6], inputs, shape, ctx->needs_input_grad(0));
    const at::Tensor up_weight = ctx->needs_input_grad(1) ? inputs.up_weight : at::Tensor();
    const at::Tensor down_weight = ctx->needs_input_grad(2) ? inputs.down_weight : at::Tensor();
    const variable_list grad_weights = now_or_later({up_weight, down_weight}, [=] {
      return weight_gradients_of(
          {{gradients.up, inputs.rows, up_weight}, {grad, gradients.activated, down_weight}},
          shape.rows_per_expert);
    });
    at::Tensor grad_up_bias;
    at::Tensor grad_down_bias;
    if (inputs.up_bias.defined()) {
      grad_up_bias =
          bias_gradient_of(gradients.up, inputs.up_bias, 0, at::Tensor(), shape.rows_per_expert);
    }
    if (inputs.down_bias.defined()) {
      grad_down_bias = bias_gradient_of(grad, inputs.down_bias, shape.first_biased_column,
                                        inputs.weights, shape.rows_per_expert);
    }
    return {gradients.rows, grad_weights[0], grad_weights[1], gradients.weights,
            grad_up_bias,   grad_down_bias,  at::Tensor()};
  }
};

void check_same_type(const at::Tensor& rows, std::string_view name, const at::Tensor& weight) {
  check_float_cpu(name, weight);
  check<ShapeError>(rows.scalar_type() == weight.scalar_type(),
                    "{} ({}) must have the dtype of rows ({})", name,
                    c10::toString(weight.scalar_type()), c10::toString(rows.scalar_type()));
}

void check_biases(const at::Tensor& rows, const at::Tensor& up_weight,
                  const ExpertMlpOptions& options) {
  const int64_t num_experts = up_weight.size(0);
  if (options.up_bias.defined()) {
    check_same_type(rows, "expert_mlp: up_bias", options.up_bias);
    check_shape("expert_mlp: up_bias", options.up_bias, {num_experts, up_weight.size(1)});
  }
  if (options.down_bias.defined()) {
    check_same_type(rows, "expert_mlp: down_bias", options.down_bias);
    check_shape("expert_mlp: down_bias", options.down_bias, {num_experts, kAnySize});
    const int64_t end = options.first_biased_column + options.down_bias.size(1);
    check<ShapeError>(options.first_biased_column >= 0 && end <= rows.size(1),
                      "expert_mlp: down_bias is for columns {} to {} of {}",
                      options.first_biased_column, end - 1, rows.size(1));
  }
}

}  // namespace

at::Tensor expert_mlp(const at::Tensor& rows, const at::Tensor& up_weight,
                      const at::Tensor& down_weight, const at::Tensor& weights,
                      const std::vector<int64_t>& rows_per_expert,
                      const ExpertMlpOptions& options) {
  check_float_cpu("expert_mlp: rows", rows);
  check_same_type(rows, "expert_mlp: up_weight", up_weight);
  check_same_type(rows, "expert_mlp: down_weight", down_weight);
  check_shape("expert_mlp: rows", rows, {kAnySize, kAnySize});
  const auto num_experts = static_cast<int64_t>(rows_per_expert.size());
  check_shape("expert_mlp: down_weight", down_weight, {num_experts, rows.size(1), kAnySize});
  check_shape("expert_mlp: up_weight", up_weight,
              {num_experts, options.function.num_inputs() * down_weight.size(2), rows.size(1)});
  check_rows_per_expert("expert_mlp", rows_per_expert, rows.size(0));
  if (weights.defined()) {
    check_row_weights("expert_mlp: weights", weights, rows.size(0));
  }
  check_biases(rows, up_weight, options);
  check_limits("expert_mlp", options.function);
  return ExpertMlp::apply(rows.contiguous(), up_weight.contiguous(), down_weight.contiguous(),
                          given(weights), given(options.up_bias), given(options.down_bias),
                          Shape{options.function, options.first_biased_column, rows_per_expert});
}

}  // namespace switchyard
