// Optimizer state, gradients and parameters that are divided over data-parallel ranks, against
// those that every rank has whole: the same bits.
#include <mutex>

#include <gtest/gtest.h>

#include "base/random.h"
#include "optim/adamw.h"
#include "optim/clip.h"
#include "optim/gradients.h"
#include "optim/partition.h"
#include "optim/publish.h"
#include "optim/test_parameters.h"
#include "parallel/launch.h"

namespace switchyard {
namespace {

constexpr int kSteps = 3;

// The elements of every piece, by name and place, with how many ranks own them.
TEST(Sharding, GivesEveryElementToOneRankOfItsGradientGroup) {
  for (const MeshShape& layout : test_layouts()) {
    std::mutex mutex;
    std::map<std::string, std::pair<int64_t, int64_t>> owners;  // counted, expected
    run_ranks(layout, [&](Groups& groups) {
      Parameters parameters(groups, Dtypes::fp32(), 1, FirstValues::kInitial,
                            DataSharding::kOptimizer);
      declare_test_parameters(parameters);
      const std::lock_guard lock(mutex);
      for (const auto& storage : parameters.storages()) {
        for (const PieceRange& range : storage->owned) {
          const Parameter& piece = storage->pieces[range.piece];
          for (int64_t i = range.elements.begin; i < range.elements.end; ++i) {
            auto& [count, expected] = owners[fmt::format("{} {} {}", piece.name(),
                                                         fmt::join(piece.local_start(), ","), i)];
            ++count;
            expected = piece.num_gradient_groups();
          }
        }
      }
    });
    int64_t total = 0;
    for (const auto& [element, counts] : owners) {
      EXPECT_EQ(counts.first, counts.second) << element;
      ++total;
    }
    EXPECT_EQ(total, 24 + 6 + 5 + 12 + 24);
  }
}

// What a rank's backward pass may leave: random, another on every rank that sees other tokens.
at::Tensor backward_gradient(const ParameterStorage& storage, int64_t rank, int step) {
  at::Tensor gradient = at::empty(storage.leaf.sizes(), storage.leaf.scalar_type());
  const RandomStream stream(static_cast<uint64_t>(step),
                            fmt::format("{} {}", storage.pieces.front().name(), rank));
  for (int64_t i = 0; i < gradient.numel(); ++i) {
    gradient.view({-1})[i] = stream.normal(static_cast<uint64_t>(i));
  }
  return gradient;
}

struct Outcome {
  std::vector<at::Tensor> leaves;
  std::vector<double> norms;
  int64_t gradient_bytes = 0;
  int64_t parameter_bytes = 0;
  int64_t state_elements = 0;
  int64_t gradient_elements = 0;
  int64_t leaf_bytes = 0;  // at rest
};

// tp ranks must come to equal gradients of invariant parameters: they start from those of the
// first.
int64_t rank_of_gradient(const Groups& groups) {
  return groups.rank() - groups.mesh().coordinate(groups.rank(), Axis::kTensor);
}

int64_t count_elements(const Parameters& parameters, at::Tensor ParameterStorage::*which) {
  int64_t count = 0;
  for (const auto& storage : parameters.storages()) {
    count += ((*storage).*which).numel();
  }
  return count;
}

Outcome train(const Groups& groups, Dtypes dtypes, DataSharding sharding,
              const std::function<void(Parameters&)>& declare) {
  Parameters parameters(groups, dtypes, 5, FirstValues::kInitial, sharding);
  declare(parameters);
  const auto partition = make_partition(parameters, ParallelConfig{});
  OptimizerConfig settings;
  settings.weight_decay = 0.1;
  AdamW optimizer(parameters, settings);
  Outcome outcome;
  for (int step = 0; step < kSteps; ++step) {
    for (const auto& storage : parameters.storages()) {
      storage->leaf.mutable_grad() = backward_gradient(*storage, rank_of_gradient(groups), step);
    }
    partition == nullptr ? absorb_gradients(parameters) : partition->pass_ends({"head"});
    reduce_gradients(parameters);
    outcome.gradient_elements = count_elements(parameters, &ParameterStorage::gradient);
    outcome.norms.push_back(gradient_norm(parameters));
    optimizer.step(0.01, clip_coefficient(outcome.norms.back(), 1));
    publish_parameters(parameters);
    clear_gradients(parameters);
  }
  for (const auto& storage : parameters.storages()) {
    outcome.leaf_bytes += static_cast<int64_t>(storage->leaf.storage().nbytes());
  }
  const auto copy_leaves = [&] {
    for (const auto& storage : parameters.storages()) {
      outcome.leaves.push_back(storage->leaf.detach().clone());
    }
  };
  partition == nullptr ? copy_leaves() : partition->with_all_present(copy_leaves);
  for (const AdamWMoments& moments : optimizer.moments()) {
    outcome.state_elements += moments.first.numel();
  }
  outcome.gradient_bytes = groups.ledger().bytes(Purpose::kGradient);
  outcome.parameter_bytes = groups.ledger().bytes(Purpose::kParameters);
  return outcome;
}

Outcome train_in_fresh_ledger(const Groups& groups, Dtypes dtypes, DataSharding sharding,
                              const std::function<void(Parameters&)>& declare) {
  groups.ledger().clear();
  return train(groups, dtypes, sharding, declare);
}

TEST(Sharding, TrainsToTheSameBitsInEveryLayout) {
  for (const Dtypes& dtypes : {Dtypes::fp32(), Dtypes::bf16()}) {
    for (const MeshShape& layout : test_layouts()) {
      std::mutex mutex;
      run_ranks(layout, [&](Groups& groups) {
        const Outcome whole = train(groups, dtypes, DataSharding::kNone, declare_test_parameters);
        for (const DataSharding sharding :
             {DataSharding::kOptimizer, DataSharding::kGradients, DataSharding::kParameters}) {
          const Outcome sharded = train(groups, dtypes, sharding, declare_test_parameters);
          const std::lock_guard lock(mutex);
          EXPECT_EQ(sharded.norms, whole.norms);
          for (size_t i = 0; i < whole.leaves.size(); ++i) {
            EXPECT_TRUE(sharded.leaves[i].equal(whole.leaves[i]))
                << i << " of rank " << groups.rank() << " of " << layout.world_size << ", sharding "
                << static_cast<int>(sharding);
          }
        }
      });
    }
  }
}

void declare_large(Parameters& parameters) {
  for (int i = 0; i < 3; ++i) {
    ParameterSpec spec;
    spec.name = fmt::format("large.{}", i);
    spec.shape = {1001, 97};
    spec.init = Init::normal(1);
    parameters.declare({spec}, spec.shape);
  }
}

TEST(Sharding, HoldsAQuarterOnFourRanksAndMovesTheBytesOfAnAllReduce) {
  run_ranks({.world_size = 4}, [](Groups& groups) {
    const Outcome whole =
        train_in_fresh_ledger(groups, Dtypes::fp32(), DataSharding::kNone, declare_large);
    const Outcome sharded =
        train_in_fresh_ledger(groups, Dtypes::fp32(), DataSharding::kOptimizer, declare_large);
    EXPECT_NEAR(static_cast<double>(sharded.state_elements),
                static_cast<double>(whole.state_elements) / 4, 4);
    EXPECT_EQ(whole.parameter_bytes, 0);
    // Shards differ by one element where 4 does not divide, and a rank sends what the others own
    // in one half and what it owns itself in the other.
    constexpr double kUneven = 3 * kSteps * 3 * 4;
    EXPECT_NEAR(static_cast<double>(sharded.gradient_bytes + sharded.parameter_bytes),
                static_cast<double>(whole.gradient_bytes), kUneven);
  });
}

// Gradients travel after each backward pass, and parameters once more each time they are used.
TEST(Sharding, MovesTheBytesOfEveryPassAndUse) {
  run_ranks({.world_size = 4}, [](Groups& groups) {
    constexpr double kThreeQuarters = 3 * 1001 * 97 * 4 * 3 / 4.0;
    constexpr double kUneven = 6 * 3 * 3 * 4;
    const auto expect_bytes = [&](Purpose purpose, double times) {
      EXPECT_NEAR(static_cast<double>(groups.ledger().bytes(purpose)), times * kThreeQuarters,
                  kUneven);
    };
    Parameters parameters(groups, Dtypes::fp32(), 5, FirstValues::kInitial,
                          DataSharding::kParameters);
    declare_large(parameters);
    const auto partition = make_partition(parameters, ParallelConfig{});
    groups.ledger().clear();
    for (int pass = 0; pass < 2; ++pass) {
      partition->forward_begins("head");
      partition->forward_ends("head");
      partition->backward_begins("head");
      partition->backward_ends("head");
      partition->pass_ends({"head"});
    }
    reduce_gradients(parameters);
    publish_parameters(parameters);
    expect_bytes(Purpose::kGradient, 2);
    expect_bytes(Purpose::kParameters, 4);
  });
}

TEST(Sharding, DividesGradientsAndParametersByTheRanks) {
  run_ranks({.world_size = 4}, [](Groups& groups) {
    constexpr double kElements = 3 * 1001 * 97;
    for (const Dtypes& dtypes : {Dtypes::fp32(), Dtypes::bf16()}) {
      const Outcome gradients = train(groups, dtypes, DataSharding::kGradients, declare_large);
      EXPECT_NEAR(static_cast<double>(gradients.gradient_elements), kElements / 4, 3);
      EXPECT_EQ(gradients.leaf_bytes, 3 * 1001 * 97 * (dtypes.is_mixed() ? 2 : 4));
      const Outcome parameters = train(groups, dtypes, DataSharding::kParameters, declare_large);
      EXPECT_NEAR(static_cast<double>(parameters.gradient_elements), kElements / 4, 3);
      EXPECT_NEAR(static_cast<double>(parameters.state_elements), kElements / 4, 3);
      EXPECT_EQ(parameters.leaf_bytes, 0);
    }
  });
}

// In mixed precision the master values are divided as well, and a checkpoint's are read back there.
TEST(Sharding, DividesTheMasterValuesOfMixedPrecision) {
  run_ranks({.world_size = 4}, [](Groups& groups) {
    Parameters parameters(groups, Dtypes::bf16(), 5, FirstValues::kInitial,
                          DataSharding::kOptimizer);
    declare_large(parameters);
    int64_t num_masters = 0;
    for (const auto& storage : parameters.storages()) {
      num_masters += storage->master.numel();
      EXPECT_EQ(storage->master.numel(), storage->num_owned());
      storage->master.fill_(static_cast<double>(groups.rank()));
    }
    EXPECT_NEAR(static_cast<double>(num_masters), 3 * 1001 * 97 / 4.0, 3);
    publish_parameters(parameters);
    for (const auto& storage : parameters.storages()) {
      const at::Tensor flat = storage->leaf.detach().view({-1});
      for (int64_t rank = 0; rank < 4; ++rank) {
        const ShardRange range = shard_range(flat.numel(), 4, rank);
        EXPECT_TRUE(flat.slice(0, range.begin, range.end).eq(rank).all().item<bool>());
      }
    }
  });
}

}  // namespace
}  // namespace switchyard
