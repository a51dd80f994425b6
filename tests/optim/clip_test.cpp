#include "optim/clip.h"

#include <cmath>
#include <limits>

#include <gtest/gtest.h>

#include "base/error.h"
#include "optim/test_parameters.h"
#include "parallel/launch.h"

namespace switchyard {
namespace {

// The initial values are a function of the logical index: a gradient that all layouts agree on.
void use_master_as_gradient(Parameters& parameters) {
  for (const auto& storage : parameters.storages()) {
    storage->gradient = storage->master.clone();
  }
}

TEST(GradientNorm, IsTheOneRankNormInEveryLayout) {
  const auto single = Groups::single();
  Parameters whole(*single, Dtypes::fp64(), 7);
  declare_test_parameters(whole);
  use_master_as_gradient(whole);
  double sum = 0;  // by a plain loop
  for (const auto& storage : whole.storages()) {
    for (int64_t i = 0; i < storage->gradient.numel(); ++i) {
      const auto value = storage->gradient.const_data_ptr<double>()[i];
      sum += value * value;
    }
  }
  const double expected = std::sqrt(sum);
  EXPECT_NEAR(gradient_norm(whole), expected, 1e-14 * expected);
  for (const MeshShape& layout : test_layouts()) {
    run_ranks(layout, [&](Groups& groups) {
      Parameters parameters(groups, Dtypes::fp64(), 7);
      declare_test_parameters(parameters);
      use_master_as_gradient(parameters);
      EXPECT_NEAR(gradient_norm(parameters), expected, 1e-14 * expected)
          << groups.mesh().describe(groups.rank());
    });
  }
}

// All ones: the square is the number of logical elements, 30 + 5 + 12 + 24, in all layouts. The
// values that a norm per rank or per group would give are other roots.
TEST(GradientNorm, CountsEveryLogicalElementOnce) {
  for (const MeshShape& layout : test_layouts()) {
    run_ranks(layout, [](Groups& groups) {
      Parameters parameters(groups, Dtypes::fp32(), 1);
      declare_test_parameters(parameters);
      for (const auto& storage : parameters.storages()) {
        storage->gradient = at::ones_like(storage->master);
      }
      EXPECT_DOUBLE_EQ(gradient_norm(parameters), std::sqrt(71.0));
    });
  }
}

// Each pipeline stage holds other parameters, here of the same shapes: both add up.
TEST(GradientNorm, AddsUpOverPipelineStages) {
  MeshShape stages;
  stages.world_size = 4;
  stages.pipeline = 2;
  run_ranks(stages, [](Groups& groups) {
    Parameters parameters(groups, Dtypes::fp64(), 1);
    declare_test_parameters(parameters);
    for (const auto& storage : parameters.storages()) {
      storage->gradient = at::ones_like(storage->master);
    }
    EXPECT_DOUBLE_EQ(gradient_norm(parameters), std::sqrt(142.0));
  });
}

TEST(GradientNorm, ReportsWhatIsNotFiniteOnAllRanks) {
  MeshShape two;
  two.world_size = 2;
  run_ranks(two, [](Groups& groups) {
    Parameters parameters(groups, Dtypes::fp32(), 1);
    declare_test_parameters(parameters);
    use_master_as_gradient(parameters);
    // The last element: of the half that rank 1 sums.
    parameters.storages()[0]->gradient.view({-1})[-1] = std::numeric_limits<float>::quiet_NaN();
    EXPECT_TRUE(std::isnan(gradient_norm(parameters)));
    parameters.storages()[0]->gradient.view({-1})[-1] = std::numeric_limits<float>::infinity();
    EXPECT_TRUE(std::isinf(gradient_norm(parameters)));
    // One rank's loss is enough.
    use_master_as_gradient(parameters);
    EXPECT_TRUE(std::isfinite(gradient_norm(parameters)));
    EXPECT_TRUE(std::isnan(gradient_norm(parameters, groups.rank() != 1)));
  });
}

TEST(ClipCoefficient, ScalesALargeNormToTheLimit) {
  // max_norm / (norm + 1e-6), the formula of torch.nn.utils.clip_grad_norm_.
  EXPECT_DOUBLE_EQ(clip_coefficient(5, 1), 1 / 5.000001);
  EXPECT_DOUBLE_EQ(clip_coefficient(0.5, 1), 1);
  EXPECT_DOUBLE_EQ(clip_coefficient(0, 1), 1);
  EXPECT_DOUBLE_EQ(clip_coefficient(5, 0), 1);  // off
}

TEST(ClipCoefficient, RefusesANormThatIsNotFinite) {
  try {
    clip_coefficient(std::numeric_limits<double>::quiet_NaN(), 0);
    FAIL();
  } catch (const DivergedError& error) {
    EXPECT_STREQ(error.what(),
                 "the gradient norm is nan: the run has diverged; lower optimizer.lr or raise "
                 "optimizer.warmup_steps, and restart from the last checkpoint");
  }
  EXPECT_THROW(clip_coefficient(std::numeric_limits<double>::infinity(), 1), DivergedError);
}

}  // namespace
}  // namespace switchyard
