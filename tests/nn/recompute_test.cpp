#include "nn/recompute.h"

#include <gtest/gtest.h>

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

namespace switchyard {
namespace {

at::Tensor numbers(at::IntArrayRef shape, double factor) {
  int64_t count = 1;
  for (const int64_t size : shape) {
    count *= size;
  }
  return at::sin(at::arange(count, at::kDouble) * factor).view(shape);
}

// A segment with saved inputs, outputs and parameters, that counts its runs and tells whether a
// tensor made inside is still alive.
struct Probe {
  at::Tensor weight = numbers({6, 6}, 0.7).requires_grad_(true);
  int num_runs = 0;
  c10::weak_intrusive_ptr<c10::TensorImpl> inner{c10::intrusive_ptr<c10::TensorImpl>()};

  Segment segment() {
    return [this](const std::vector<at::Tensor>& inputs) {
      ++num_runs;
      const at::Tensor product = at::matmul(inputs[0], weight);
      const at::Tensor activated = at::exp(at::sin(product));
      if (num_runs == 1) {
        inner = c10::weak_intrusive_ptr<c10::TensorImpl>(product.getIntrusivePtr());
      }
      return std::vector<at::Tensor>{activated * inputs[0], activated.sum()};
    };
  }
};

TEST(Recompute, GivesTheSameBitsAndRunsTheSegmentAgainOnce) {
  const at::Tensor x = numbers({4, 6}, 1.3);
  Probe plain;
  const at::Tensor plain_x = x.clone().requires_grad_(true);
  const auto expected = plain.segment()({plain_x});
  (expected[0].square().sum() + expected[1]).backward();

  Probe probe;
  const at::Tensor input = x.clone().requires_grad_(true);
  const auto outputs = recompute(probe.segment(), {input});
  EXPECT_EQ(probe.num_runs, 1);
  EXPECT_TRUE(at::equal(outputs[0], expected[0]));
  (outputs[0].square().sum() + outputs[1]).backward();
  EXPECT_EQ(probe.num_runs, 2);
  EXPECT_TRUE(at::equal(input.grad(), plain_x.grad()));
  EXPECT_TRUE(at::equal(probe.weight.grad(), plain.weight.grad()));
}

TEST(Recompute, KeepsNothingThatIsMadeInside) {
  const at::Tensor input = numbers({4, 6}, 1.3).requires_grad_(true);
  Probe plain;
  const auto kept = plain.segment()({input});
  EXPECT_FALSE(plain.inner.expired());
  Probe probe;
  const auto outputs = recompute(probe.segment(), {input});
  EXPECT_TRUE(probe.inner.expired());
}

TEST(Recompute, RunsOnceWithoutGradients) {
  const at::NoGradGuard no_grad;
  Probe probe;
  recompute(probe.segment(), {numbers({4, 6}, 1.3)});
  EXPECT_EQ(probe.num_runs, 1);
}

TEST(Recompute, NestsSegmentAfterSegment) {
  const at::Tensor input = numbers({4, 6}, 1.3).requires_grad_(true);
  Probe first;
  Probe second;
  const auto middle = recompute(first.segment(), {input});
  const auto last = recompute(second.segment(), {middle[0]});
  last[0].sum().backward();
  EXPECT_EQ(first.num_runs, 2);
  EXPECT_EQ(second.num_runs, 2);
  EXPECT_TRUE(input.grad().defined());
}

TEST(Recompute, RefusesASegmentThatSavesOtherTensorsTheSecondTime) {
  const at::Tensor input = numbers({4, 6}, 1.3).requires_grad_(true);
  int runs = 0;
  const auto outputs = recompute(
      [&](const std::vector<at::Tensor>& inputs) {
        const at::Tensor once = at::sin(inputs[0]);
        return std::vector<at::Tensor>{++runs == 1 ? at::exp(once) : once};
      },
      {input});
  try {
    outputs[0].sum().backward();
    FAIL();
  } catch (const std::exception& error) {
    EXPECT_NE(std::string(error.what()).find("it is not repeatable"), std::string::npos);
  }
}

}  // namespace
}  // namespace switchyard
