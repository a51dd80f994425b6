#include "optim/adamw.h"

#include <array>
#include <cmath>
#include <tuple>
#include <utility>

#include <gtest/gtest.h>

#include <ATen/Parallel.h>

#include "base/random.h"
#include "optim/test_parameters.h"
#include "parallel/launch.h"

namespace switchyard {
namespace {

OptimizerConfig config() {
  OptimizerConfig made;
  made.beta1 = 0.9;
  made.beta2 = 0.95;
  made.epsilon = 1e-8;
  made.weight_decay = 0.1;
  return made;
}

// Five elements with weight decay and three without, in one storage.
ParameterStorage& declare_eight(Parameters& parameters) {
  ParameterSpec with;
  with.name = "with";
  with.shape = {5};
  with.init = Init::ones();
  ParameterSpec without;
  without.name = "without";
  without.shape = {3};
  without.init = Init::ones();
  without.has_weight_decay = false;
  parameters.declare({with, without}, {8});
  return *parameters.storages()[0];
}

at::Tensor doubles(const std::vector<double>& values) {
  return at::tensor(values, at::kDouble);
}

void expect_near(const at::Tensor& actual, const std::vector<double>& expected) {
  ASSERT_EQ(actual.numel(), static_cast<int64_t>(expected.size()));
  for (size_t i = 0; i < expected.size(); ++i) {
    EXPECT_NEAR(actual.view({-1})[static_cast<int64_t>(i)].item<double>(), expected[i], 2e-15) << i;
  }
}

// torch 2.15.0, torch.optim.AdamW in fp64 with betas (0.9, 0.95) and eps 1e-8, weight_decay 0.1 for
// the first five values and 0 for the others; 4 steps, at step t = 0..3 with lr 0.01 (t + 1) and
// the gradient 0.5 sin(i + 1 + 0.7 t) of element i.
TEST(AdamW, EqualsTorchOverFourSteps) {
  const auto groups = Groups::single();
  Parameters parameters(*groups, Dtypes::fp64(), 1);
  ParameterStorage& storage = declare_eight(parameters);
  storage.master.copy_(doubles({0.5, -1.25, 2.0, 0.0, -0.75, 1.0, -1.0, 0.25}));
  AdamW optimizer(parameters, config());
  for (int t = 0; t < 4; ++t) {
    storage.gradient = at::sin(at::arange(8, at::kDouble) + 1 + 0.7 * t);
    optimizer.step(0.01 * (t + 1), /*gradient_scale=*/0.5);
  }
  EXPECT_EQ(optimizer.num_steps(), 4);
  expect_near(storage.master,
              {0.40254275344656565, -1.2814827855541788, 2.0368368569437498, 0.094812930831601291,
               -0.68785897450989464, 0.95557122465083244, -1.096529895321531, 0.18565829560361694});
  expect_near(
      optimizer.moments()[0].first,
      {0.10330891846603912, -0.0019604287871617106, -0.10542736685442665, -0.11196487003894426,
       -0.015562388062109711, 0.095148081729398898, 0.11837984397675858, 0.032773723608507686});
  expect_near(
      optimizer.moments()[0].second,
      {0.024122113321855512, 0.020066935150320091, 0.024847900329581452, 0.024923911431133549,
       0.02007968269296545, 0.024035492521212169, 0.025587325767366331, 0.020339934946648156});
  EXPECT_TRUE(storage.leaf.equal(storage.master));  // one memory
}

// At the first step first / (1 - beta1) is the gradient and second / (1 - beta2) its square, so
// that the update is lr g / (|g| + epsilon), and the decay lr * 0.1 * 1.
TEST(AdamW, TakesAFirstStepOfTheLearningRate) {
  const auto groups = Groups::single();
  Parameters parameters(*groups, Dtypes::fp64(), 1);
  ParameterStorage& storage = declare_eight(parameters);
  const std::vector<double> gradient = {2, -3, 0, 1e-8, 1, -4, 0, 1e-8};
  storage.gradient = doubles(gradient);
  AdamW optimizer(parameters, config());
  optimizer.step(0.1, 1);
  std::vector<double> expected;
  for (size_t i = 0; i < 8; ++i) {
    expected.push_back((i < 5 ? 0.99 : 1) - 0.1 * gradient[i] / (std::abs(gradient[i]) + 1e-8));
  }
  expect_near(storage.master, expected);
}

TEST(AdamW, KeepsFp32MasterWeightsBehindBf16Leaves) {
  const auto groups = Groups::single();
  Parameters parameters(*groups, Dtypes::bf16(), 1);
  ParameterStorage& storage = declare_eight(parameters);
  AdamW optimizer(parameters, config());
  const at::Tensor leaf = storage.leaf;
  for (int step = 0; step < 3; ++step) {
    storage.gradient = at::ones({8}, at::kFloat);
    optimizer.step(1e-3, 1);
  }
  EXPECT_EQ(optimizer.moments()[0].first.scalar_type(), at::kFloat);
  // 1 - 3 (0.001 + 0.0001 decay), which bf16 rounds to a multiple of 1/256.
  EXPECT_NEAR(storage.master[0].item<double>(), 0.9967, 1e-5);
  EXPECT_TRUE(leaf.equal(storage.master.to(at::kBFloat16)));
  EXPECT_EQ(leaf[0].item<double>(), 1 - 1.0 / 256);
}

// A gradient per step that all layouts agree on, for a storage of any layout.
at::Tensor local_gradient(const ParameterStorage& storage, int step) {
  at::Tensor gradient = at::empty_like(storage.master);
  for (size_t i = 0; i < storage.pieces.size(); ++i) {
    ParameterSpec spec = storage.pieces[i].spec();
    const RandomStream stream(99, fmt::format("{} {}", spec.name, step));
    at::Tensor logical = at::empty(spec.shape, gradient.scalar_type());
    for (int64_t element = 0; element < logical.numel(); ++element) {
      logical.view({-1})[element] = stream.normal(static_cast<uint64_t>(element));
    }
    storage.piece(gradient, i).copy_(local_part(logical, storage.pieces[i]));
  }
  return gradient;
}

void train(Parameters& parameters, AdamW& optimizer, int first_step, int end_step) {
  for (int step = first_step; step < end_step; ++step) {
    for (const auto& storage : parameters.storages()) {
      storage->gradient = local_gradient(*storage, step);
    }
    optimizer.step(0.01 * (step + 1), 0.3);
  }
}

TEST(AdamW, GivesTheBitsOfOneRankInEveryLayout) {
  const auto single = Groups::single();
  Parameters whole(*single, Dtypes::fp32(), 7);
  declare_test_parameters(whole);
  AdamW whole_optimizer(whole, config());
  train(whole, whole_optimizer, 0, 3);
  for (const MeshShape& layout : test_layouts()) {
    run_ranks(layout, [&](Groups& groups) {
      Parameters parameters(groups, Dtypes::fp32(), 7);
      declare_test_parameters(parameters);
      AdamW optimizer(parameters, config());
      train(parameters, optimizer, 0, 3);
      for (size_t s = 0; s < parameters.storages().size(); ++s) {
        const ParameterStorage& storage = *parameters.storages()[s];
        const ParameterStorage& expected = *whole.storages()[s];
        const std::array<std::pair<at::Tensor, at::Tensor>, 3> pairs = {{
            {storage.master, expected.master},
            {optimizer.moments()[s].first, whole_optimizer.moments()[s].first},
            {optimizer.moments()[s].second, whole_optimizer.moments()[s].second},
        }};
        for (const auto& [actual, of_one_rank] : pairs) {
          for (size_t i = 0; i < storage.pieces.size(); ++i) {
            EXPECT_TRUE(storage.piece(actual, i).equal(
                local_part(expected.piece(of_one_rank, i), storage.pieces[i])))
                << storage.pieces[i].name();
          }
        }
      }
    });
  }
}

TEST(AdamW, ContinuesFromItsStateWithTheSameBits) {
  const auto groups = Groups::single();
  Parameters straight(*groups, Dtypes::fp32(), 7);
  declare_test_parameters(straight);
  AdamW straight_optimizer(straight, config());
  train(straight, straight_optimizer, 0, 2);

  Parameters resumed(*groups, Dtypes::fp32(), 8);
  declare_test_parameters(resumed);
  AdamW resumed_optimizer(resumed, config());
  resumed_optimizer.set_num_steps(straight_optimizer.num_steps());
  for (size_t s = 0; s < resumed.storages().size(); ++s) {
    resumed.storages()[s]->master.copy_(straight.storages()[s]->master);
    resumed_optimizer.moments()[s].first.copy_(straight_optimizer.moments()[s].first);
    resumed_optimizer.moments()[s].second.copy_(straight_optimizer.moments()[s].second);
  }
  train(straight, straight_optimizer, 2, 4);
  train(resumed, resumed_optimizer, 2, 4);
  for (size_t s = 0; s < resumed.storages().size(); ++s) {
    EXPECT_TRUE(resumed.storages()[s]->master.equal(straight.storages()[s]->master));
  }
}

TEST(AdamW, GivesTheSameBitsForEveryNumberOfThreads) {
  const auto updated = [](int num_threads) {
    const int before = at::get_num_threads();
    at::set_num_threads(num_threads);
    const auto groups = Groups::single();
    Parameters parameters(*groups, Dtypes::fp32(), 7);
    ParameterSpec spec;
    spec.name = "large";
    spec.shape = {100'003};
    spec.init = Init::normal(1);
    parameters.declare({spec}, {100'003});
    AdamW optimizer(parameters, config());
    parameters.storages()[0]->gradient = parameters.storages()[0]->master * 0.5;
    optimizer.step(0.01, 0.7);
    at::set_num_threads(before);
    return parameters.storages()[0]->master;
  };
  EXPECT_TRUE(updated(1).equal(updated(2)));
}

// Host memory apart from the device's.
class OtherMemory final : public HostMemory {
 public:
  at::Tensor take(const at::Tensor& tensor) override { return tensor.clone(); }
  at::Tensor give_back(const at::Tensor& kept, at::Device) override {
    ++num_visits;
    return kept.clone();
  }
  int64_t num_visits = 0;
};

TEST(AdamW, StepsFromHostMemoryToTheSameBits) {
  for (const Dtypes& dtypes : {Dtypes::fp32(), Dtypes::bf16()}) {
    const auto groups = Groups::single();
    OtherMemory memory;
    const auto train = [&](bool offload) {
      Parameters parameters(*groups, dtypes, 1);
      const ParameterStorage& storage = declare_eight(parameters);
      OptimizerConfig settings = config();
      settings.offload = offload;
      AdamW optimizer(parameters, settings, memory);
      for (int t = 0; t < 3; ++t) {
        parameters.storages()[0]->gradient = at::sin(at::arange(8, at::kFloat) + 0.7 * t);
        optimizer.step(0.01, /*gradient_scale=*/0.5);
      }
      return std::tuple(storage.leaf.detach(), storage.master.detach(), optimizer.moments()[0]);
    };
    const auto [leaf, master, moments] = train(false);
    const int64_t visits_without = std::exchange(memory.num_visits, 0);
    const auto [leaf_again, master_again, moments_again] = train(true);
    EXPECT_TRUE(leaf.equal(leaf_again));
    EXPECT_TRUE(master.equal(master_again));
    EXPECT_TRUE(moments.first.equal(moments_again.first));
    EXPECT_TRUE(moments.second.equal(moments_again.second));
    EXPECT_EQ(visits_without, 0);
    EXPECT_GT(memory.num_visits, 0);
  }
}

}  // namespace
}  // namespace switchyard
