#include "ops/deferred_gradients.h"

#include <gtest/gtest.h>

#include <ATen/ATen.h>

#include "ops/dense_linear.h"
#include "ops/expert_mlp.h"

namespace switchyard {
namespace {

// Two products in a row and experts after them, whose weights are leaves.
class Chain {
 public:
  Chain() {
    at::manual_seed(3);
    const std::vector<std::vector<int64_t>> shapes = {{6, 4}, {6, 6}, {2, 10, 6}, {2, 6, 5}};
    for (const std::vector<int64_t>& sizes : shapes) {
      weights.push_back(at::randn(sizes, at::kDouble).requires_grad_(true));
    }
    input = at::randn({7, 4}, at::kDouble).requires_grad_(true);
  }

  at::Tensor loss() const {
    const at::Tensor hidden = dense_linear(dense_linear(input, weights[0]), weights[1]);
    return expert_mlp(hidden, weights[2], weights[3], {}, {3, 4}).pow(2).sum();
  }

  std::vector<at::Tensor> weights;
  at::Tensor input;
};

TEST(DeferredGradients, AreTheSameBitsLater) {
  Chain expected;
  expected.loss().backward();
  Chain chain;
  DeferredGradients later;
  {
    const DeferGradients defer(later);
    chain.loss().backward();
  }
  EXPECT_TRUE(chain.input.grad().equal(expected.input.grad()));
  for (const at::Tensor& weight : chain.weights) {
    EXPECT_FALSE(weight.grad().defined());
  }
  EXPECT_FALSE(later.empty());
  later.run();
  EXPECT_TRUE(later.empty());
  for (size_t i = 0; i < chain.weights.size(); ++i) {
    EXPECT_TRUE(chain.weights[i].grad().equal(expected.weights[i].grad()));
  }
}

TEST(DeferredGradients, AddToWhatIsThere) {
  Chain chain;
  chain.loss().backward();
  const at::Tensor once = chain.weights[0].grad().clone();
  DeferredGradients later;
  {
    const DeferGradients defer(later);
    chain.loss().backward();
  }
  chain.loss().backward();
  later.run();
  EXPECT_TRUE(chain.weights[0].grad().allclose(3 * once));
}

TEST(DeferredGradients, OfAWeightThatIsNoLeafAreComputedAtOnce) {
  at::Tensor leaf = at::randn({5, 4}, at::kFloat).requires_grad_(true);
  DeferredGradients later;
  const DeferGradients defer(later);
  dense_linear(at::randn({3, 4}, at::kDouble), leaf.to(at::kDouble)).sum().backward();
  EXPECT_TRUE(later.empty());
  EXPECT_TRUE(leaf.grad().defined());
}

}  // namespace
}  // namespace switchyard
