#include "nn/offload.h"

#include <gtest/gtest.h>

#include <ATen/ATen.h>

#include "nn/recompute.h"
#include "support/small_model.h"

namespace switchyard {
namespace {

// Host memory apart from the device's.
class OtherMemory final : public HostMemory {
 public:
  at::Tensor take(const at::Tensor& tensor) override {
    ++num_taken;
    return tensor.clone();
  }
  at::Tensor give_back(const at::Tensor& kept, at::Device) override {
    ++num_given_back;
    return kept.clone();
  }
  int64_t num_taken = 0;
  int64_t num_given_back = 0;
};

at::Tensor declare_weight(Parameters& parameters) {
  return parameters.declare(
      {{.name = "weight", .shape = {3, 4}, .init = Init::normal(1), .tensor = {}}}, {3, 4});
}

TEST(Offload, MovesWhatBackwardNeedsAndNotTheParameters) {
  const auto groups = Groups::single();
  Parameters parameters(*groups, Dtypes::fp64(), 1);
  const at::Tensor weight = declare_weight(parameters);
  const auto gradients = [&](OtherMemory* memory) {
    const at::Tensor input = at::ones({2, 4}, at::kDouble).requires_grad_(true);
    at::Tensor made;
    at::Tensor output;
    {
      const OffloadedActivations offloaded(memory != nullptr, parameters,
                                           memory == nullptr ? HostMemory::of_process() : *memory);
      made = at::exp(at::matmul(input, weight.t()));  // saves input, weight and its result
      output = made.square().sum();
    }
    const size_t users = made.storage().use_count();
    output.backward();
    const at::Tensor of_weight = weight.grad().clone();
    weight.mutable_grad().reset();
    return std::tuple(input.grad(), of_weight, users);
  };
  OtherMemory memory;
  const auto [input, of_weight, users] = gradients(nullptr);
  const auto [input_again, of_weight_again, fewer_users] = gradients(&memory);
  EXPECT_TRUE(input.equal(input_again));
  EXPECT_TRUE(of_weight.equal(of_weight_again));
  EXPECT_EQ(fewer_users, 1U);  // the graph does not hold it
  EXPECT_GT(users, 1U);
  EXPECT_EQ(memory.num_taken, 3);  // input, the result of exp, what square() has of it
  EXPECT_EQ(memory.num_given_back, 3);
}

TEST(Offload, LeavesToSegmentsWhatTheyMakeAgain) {
  const auto groups = Groups::single();
  Parameters parameters(*groups, Dtypes::fp64(), 1);
  const at::Tensor weight = declare_weight(parameters);
  OtherMemory memory;
  const at::Tensor input = at::ones({2, 4}, at::kDouble).requires_grad_(true);
  const Segment segment = [&](const std::vector<at::Tensor>& inputs) {
    const OffloadedActivations offloaded(true, parameters, memory);
    return std::vector<at::Tensor>{at::exp(at::matmul(inputs[0], weight.t()))};
  };
  recompute(segment, {input})[0].sum().backward();
  EXPECT_EQ(memory.num_taken, 0);
  EXPECT_TRUE(input.grad().defined());
}

TEST(Offload, IsNothingOnTheCpu) {
  const at::Tensor tensor = at::ones({2});
  EXPECT_TRUE(HostMemory::of_process().take(tensor).is_same(tensor));
  EXPECT_TRUE(HostMemory::of_process().give_back(tensor, at::kCPU).is_same(tensor));
}

}  // namespace
}  // namespace switchyard
