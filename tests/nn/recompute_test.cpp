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

TEST(RecomputeWithOutput, DropsTheOutputThatOthersSave) {
  const at::Tensor x = numbers({4, 6}, 1.3);
  const at::Tensor weight = numbers({6, 6}, 0.7);
  int num_runs = 0;
  const auto segment = [&](const std::vector<at::Tensor>& inputs) {
    ++num_runs;
    return at::exp(at::sin(inputs[0]));
  };
  // The output is saved as it is, as a view, as a transposed matrix, and by a segment as its input.
  const auto use = [](const at::Tensor& made, const at::Tensor& with) {
    const Segment inner = [with](const std::vector<at::Tensor>& inputs) {
      return std::vector<at::Tensor>{at::sin(at::matmul(inputs[0], with))};
    };
    return at::matmul(made, with) + made.narrow(1, 2, 1).square() +
           at::matmul(made.t(), made).sum() + recompute(inner, {made})[0];
  };
  const at::Tensor plain_x = x.clone().requires_grad_(true);
  const at::Tensor plain_weight = weight.clone().requires_grad_(true);
  const at::Tensor expected = use(segment({plain_x}), plain_weight);
  expected.square().sum().backward();

  const at::Tensor input = x.clone().requires_grad_(true);
  const at::Tensor own_weight = weight.clone().requires_grad_(true);
  c10::weak_intrusive_ptr<c10::StorageImpl> made{c10::intrusive_ptr<c10::StorageImpl>()};
  at::Tensor result;
  num_runs = 0;
  {
    const DroppedOutputs dropped;
    const at::Tensor output = recompute_with_output(segment, {input});
    made = output.storage().getWeakStorageImpl();
    result = use(output, own_weight);
    EXPECT_FALSE(made.expired());
  }
  EXPECT_TRUE(made.expired());
  EXPECT_TRUE(at::equal(result, expected));
  result.square().sum().backward();
  EXPECT_EQ(num_runs, 2);
  EXPECT_TRUE(at::equal(input.grad(), plain_x.grad()));
  EXPECT_TRUE(at::equal(own_weight.grad(), plain_weight.grad()));
}

TEST(RecomputeWithOutput, KeepsTheOutputOutsideOfAScope) {
  const at::Tensor input = numbers({4, 6}, 1.3).requires_grad_(true);
  const auto segment = [](const std::vector<at::Tensor>& inputs) { return at::exp(inputs[0]); };
  const at::Tensor output = recompute_with_output(segment, {input});
  (output * output).sum().backward();
  EXPECT_TRUE(at::allclose(input.grad(), 2 * at::exp(2 * input.detach())));
}

TEST(Recompute, RunsPlainlyWithinASegment) {
  const at::Tensor input = numbers({4, 6}, 1.3).requires_grad_(true);
  int inner_runs = 0;
  const Segment inner = [&](const std::vector<at::Tensor>& inputs) {
    ++inner_runs;
    return std::vector<at::Tensor>{at::exp(at::sin(inputs[0]))};
  };
  const Segment outer = [&](const std::vector<at::Tensor>& inputs) {
    return recompute(inner, {at::cos(inputs[0])});
  };
  recompute(outer, {input})[0].sum().backward();
  EXPECT_EQ(inner_runs, 2);
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
