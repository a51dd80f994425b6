#pragma once

#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <torch/csrc/autograd/autograd.h>

// What the tests of operators share.
namespace switchyard {

using Tensors = std::vector<at::Tensor>;

// The message of the exception that `call` throws; empty when it throws none.
inline std::string message_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const std::exception& error) {
    return error.what();
  }
  return "";
}

inline bool same_bytes(const at::Tensor& a, const at::Tensor& b) {
  const at::Tensor x = a.contiguous();
  const at::Tensor y = b.contiguous();
  return x.sizes() == y.sizes() && x.scalar_type() == y.scalar_type() &&
         (x.numel() == 0 || std::memcmp(x.const_data_ptr(), y.const_data_ptr(), x.nbytes()) == 0);
}

// Outputs must have the same bytes on one thread, two and three, and when run again.
inline void expect_same_bytes_for_all_thread_counts(const std::function<Tensors()>& run) {
  const int threads = at::get_num_threads();
  at::set_num_threads(1);
  const Tensors expected = run();
  for (const int count : {1, 2, 3}) {
    at::set_num_threads(count);
    const Tensors actual = run();
    ASSERT_EQ(actual.size(), expected.size());
    for (size_t i = 0; i < actual.size(); ++i) {
      EXPECT_TRUE(same_bytes(actual[i], expected[i]))
          << "output " << i << " differs on " << count << " threads by up to "
          << (actual[i] - expected[i]).abs().max();
    }
  }
  at::set_num_threads(threads);
}

// While it lives, new tensors start as NaN (integers as their largest value), so that an element
// that an operator forgets to write shows.
class PoisonNewTensors {
 public:
  PoisonNewTensors() { at::globalContext().setDeterministicAlgorithms(true, false); }
  ~PoisonNewTensors() { at::globalContext().setDeterministicAlgorithms(false, false); }
  PoisonNewTensors(const PoisonNewTensors&) = delete;
  PoisonNewTensors& operator=(const PoisonNewTensors&) = delete;
};

// Largest difference over largest magnitude of `expected`, taken in fp64.
inline double relative_error(const at::Tensor& actual, const at::Tensor& expected) {
  EXPECT_EQ(actual.sizes(), expected.sizes());
  if (expected.numel() == 0) {
    return 0;
  }
  const at::Tensor reference = expected.to(at::kDouble);
  const double scale = std::max(reference.abs().max().item<double>(), 1e-30);
  return (actual.to(at::kDouble) - reference).abs().max().item<double>() / scale;
}

// Gradients of `inputs` for the sum of probe x output over the outputs.
inline Tensors gradients(const std::function<Tensors(const Tensors&)>& op, const Tensors& inputs,
                         const Tensors& probes) {
  Tensors leaves;
  for (const at::Tensor& input : inputs) {
    leaves.push_back(input.detach().requires_grad_());
  }
  return torch::autograd::grad(op(leaves), leaves, probes);
}

// Compares the gradients of `op` with central differences in fp64, for every element of `inputs`.
inline void expect_gradients_match_differences(const std::function<Tensors(const Tensors&)>& op,
                                               const Tensors& inputs, double tolerance = 1e-7) {
  constexpr double kStep = 1e-5;
  Tensors probes;
  for (const at::Tensor& output : op(inputs)) {
    probes.push_back(at::randn(output.sizes(), at::kDouble));
  }
  const auto objective = [&] {
    const Tensors outputs = op(inputs);
    double sum = 0;
    for (size_t i = 0; i < outputs.size(); ++i) {
      sum += (outputs[i] * probes[i]).sum().item<double>();
    }
    return sum;
  };
  const Tensors actual = gradients(op, inputs, probes);
  for (size_t i = 0; i < inputs.size(); ++i) {
    at::Tensor expected = at::empty_like(inputs[i]);
    auto* value = inputs[i].mutable_data_ptr<double>();
    for (int64_t j = 0; j < inputs[i].numel(); ++j) {
      const double before = value[j];
      value[j] = before + kStep;
      const double above = objective();
      value[j] = before - kStep;
      const double below = objective();
      value[j] = before;
      expected.mutable_data_ptr<double>()[j] = (above - below) / (2 * kStep);
    }
    EXPECT_LE(relative_error(actual[i], expected), tolerance) << "gradient of input " << i;
  }
}

}  // namespace switchyard
