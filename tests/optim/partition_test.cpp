#include "optim/partition.h"

#include <gtest/gtest.h>

#include <ATen/ATen.h>

#include "base/error.h"
#include "optim/gradients.h"
#include "optim/publish.h"
#include "parallel/launch.h"

namespace switchyard {
namespace {

void declare(Parameters& parameters) {
  for (const char* name : {"embedding.weight", "layers.0.up", "layers.1.up", "layers.1.down",
                           "final_norm.weight", "head.weight"}) {
    ParameterSpec spec;
    spec.name = name;
    spec.shape = {5, 3};
    spec.init = Init::normal(1);
    parameters.declare({spec}, spec.shape);
  }
}

// Names of the storages whose leaves have memory.
std::vector<std::string> present(const Parameters& parameters) {
  std::vector<std::string> names;
  for (const auto& storage : parameters.storages()) {
    if (storage->leaf.storage().nbytes() > 0) {
      names.push_back(storage->pieces.front().name());
    }
  }
  return names;
}

using Names = std::vector<std::string>;

TEST(PartOf, IsALayerOrAnEnd) {
  EXPECT_EQ(part_of("embedding.weight"), "embedding");
  EXPECT_EQ(part_of("layers.12.attention.q"), "layers.12");
  EXPECT_EQ(part_of("final_norm.weight"), "head");
  EXPECT_EQ(part_of("head.weight"), "head");
}

TEST(Partition, BringsInThePartThatIsUsedAndTheNext) {
  run_ranks({.world_size = 2}, [](Groups& groups) {
    Parameters parameters(groups, Dtypes::fp32(), 1, FirstValues::kInitial,
                          DataSharding::kParameters);
    declare(parameters);
    EXPECT_EQ(present(parameters), Names{});
    Partition partition(parameters, 1);
    partition.forward_begins("embedding");
    EXPECT_EQ(present(parameters), (Names{"embedding.weight", "layers.0.up"}));
    partition.forward_ends("embedding");
    partition.forward_begins("layers.0");
    EXPECT_EQ(present(parameters), (Names{"layers.0.up", "layers.1.up", "layers.1.down"}));
    partition.forward_ends("layers.0");
    partition.backward_begins("layers.1");
    partition.forward_begins("layers.1");  // computed again
    partition.forward_ends("layers.1");
    EXPECT_EQ(present(parameters), (Names{"layers.0.up", "layers.1.up", "layers.1.down",
                                          "final_norm.weight", "head.weight"}));
    partition.backward_ends("layers.1");
    EXPECT_EQ(present(parameters), (Names{"layers.0.up", "final_norm.weight", "head.weight"}));
    partition.values_change();
    EXPECT_EQ(present(parameters), Names{});
  });
}

TEST(Partition, GathersWhatTheOptimizerWrote) {
  for (const Dtypes& dtypes : {Dtypes::fp32(), Dtypes::bf16()}) {
    run_ranks({.world_size = 3}, [&](Groups& groups) {
      Parameters parameters(groups, dtypes, 1, FirstValues::kInitial, DataSharding::kParameters);
      declare(parameters);
      Parameters whole(groups, dtypes, 1);
      declare(whole);
      Partition partition(parameters, 2);
      const auto expect_equal = [&](double factor) {
        partition.with_all_present([&] {
          for (size_t i = 0; i < whole.storages().size(); ++i) {
            const at::Tensor expected =
                (whole.storages()[i]->master * factor).to(dtypes.compute).detach();
            EXPECT_TRUE(parameters.storages()[i]->leaf.detach().equal(expected)) << i;
          }
        });
      };
      expect_equal(1);
      partition.forward_begins("embedding");  // what it brings in ahead is out of date afterwards
      partition.forward_ends("embedding");
      for (const auto& storage : parameters.storages()) {
        storage->master.mul_(2);
      }
      publish_parameters(parameters);
      expect_equal(2);
    });
  }
}

// A graph that was made before the leaf lost its memory finds the values there again.
TEST(Partition, LetsAGraphFindALeafAgain) {
  run_ranks({.world_size = 2}, [](Groups& groups) {
    Parameters parameters(groups, Dtypes::fp64(), 1, FirstValues::kInitial,
                          DataSharding::kParameters);
    declare(parameters);
    Partition partition(parameters, 0);
    const ParameterStorage& storage = *parameters.storages()[1];
    const at::Tensor input = at::ones({2, 3}, at::kDouble).requires_grad_(true);
    at::Tensor output;
    {
      const at::Tensor hidden = input * 1;
      PartUse use(&partition, "layers.0", hidden);
      output = at::matmul(hidden, storage.leaf.t()).square();
      use.ends_with(output);
    }
    EXPECT_EQ(present(parameters), Names{});
    output.sum().backward();
    EXPECT_EQ(present(parameters), Names{});
    partition.with_all_present([&] {
      const at::Tensor weight = storage.leaf.detach();
      const at::Tensor product = at::matmul(input.detach(), weight.t());
      EXPECT_TRUE(at::allclose(input.grad(), at::matmul(2 * product, weight)));
    });
    EXPECT_FALSE(storage.leaf.grad().defined());  // it is in the shards, summed over both ranks
    EXPECT_EQ(storage.gradient.numel(), storage.num_owned());
    partition.pass_ends({"layers.0"});
    EXPECT_EQ(parameters.storages()[2]->gradient.defined(), false);
  });
}

TEST(Partition, RefusesAGradientThatComesTooLate) {
  run_ranks({.world_size = 2}, [](Groups& groups) {
    Parameters parameters(groups, Dtypes::fp32(), 1, FirstValues::kInitial,
                          DataSharding::kGradients);
    declare(parameters);
    Partition partition(parameters, 1);
    partition.backward_begins("layers.0");
    partition.backward_ends("layers.0");
    parameters.storages()[1]->leaf.mutable_grad() = at::ones({5, 3});
    EXPECT_THROW(partition.pass_ends({"layers.0"}), ShapeError);
  });
}

}  // namespace
}  // namespace switchyard
