#include "optim/gradients.h"

#include <gtest/gtest.h>

#include "optim/test_parameters.h"
#include "parallel/launch.h"

namespace switchyard {
namespace {

// What rank `rank` contributes at each element of a storage: exact in fp64, different everywhere.
at::Tensor contribution(const ParameterStorage& storage, int64_t rank) {
  return (at::arange(storage.master.numel(), at::kDouble) + 1000 * static_cast<double>(rank + 1))
      .view(storage.master.sizes());
}

// Whether two ranks hold the same elements of a parameter and contribute to one sum, by
// coordinates.
bool add_up(const Mesh& mesh, const Parameter& piece, int64_t rank, int64_t other) {
  const auto agree = [&](Axis axis) {
    return mesh.coordinate(rank, axis) == mesh.coordinate(other, axis);
  };
  if (piece.spec().family == Family::kExpert) {
    return agree(Axis::kExpert) && agree(Axis::kExpertTensor);
  }
  return piece.spec().tensor.kind == PlacementKind::kReplicated || agree(Axis::kTensor);
}

void expect_sums(const Parameters& parameters) {
  const Mesh& mesh = parameters.groups().mesh();
  const int64_t rank = parameters.groups().rank();
  for (const auto& storage : parameters.storages()) {
    for (size_t i = 0; i < storage->pieces.size(); ++i) {
      const Parameter& piece = storage->pieces[i];
      at::Tensor expected = at::zeros(piece.local_shape(), at::kDouble);
      for (int64_t other = 0; other < mesh.world_size(); ++other) {
        if (add_up(mesh, piece, rank, other)) {
          expected += storage->piece(contribution(*storage, other), i);
        }
      }
      EXPECT_TRUE(storage->piece(storage->gradient, i).equal(expected))
          << piece.name() << " on rank " << rank << " of " << mesh.world_size();
    }
  }
}

TEST(ReduceGradients, SumsOverTheRanksThatHoldTheSameElements) {
  for (const MeshShape& layout : test_layouts()) {
    for (const int64_t bucket_bytes : {int64_t{1}, int64_t{400}, kBucketBytes}) {
      run_ranks(layout, [&](Groups& groups) {
        Parameters parameters(groups, Dtypes::fp64(), 1);
        declare_test_parameters(parameters);
        for (const auto& storage : parameters.storages()) {
          storage->gradient = contribution(*storage, groups.rank());
        }
        reduce_gradients(parameters, bucket_bytes);
        expect_sums(parameters);
      });
    }
  }
}

TEST(ReduceGradients, CountsAnUndefinedGradientAsZeros) {
  MeshShape two;
  two.world_size = 2;
  run_ranks(two, [](Groups& groups) {
    Parameters parameters(groups, Dtypes::fp64(), 1);
    declare_test_parameters(parameters);
    // Rank 0 never used the norm, rank 1 nothing else, and nobody the router.
    for (size_t i = 0; i < 4; ++i) {
      ParameterStorage& storage = *parameters.storages()[i];
      if ((i == 1) == (groups.rank() == 1) && i != 2) {
        storage.gradient = contribution(storage, groups.rank());
      }
    }
    reduce_gradients(parameters);
    for (size_t i = 0; i < 4; ++i) {
      const ParameterStorage& storage = *parameters.storages()[i];
      const at::Tensor expected =
          i == 2 ? at::zeros({4, 3}, at::kDouble) : contribution(storage, i == 1 ? 1 : 0);
      EXPECT_TRUE(storage.gradient.equal(expected)) << i;
    }
  });
}

void declare_dense(Parameters& parameters, const std::string& name, int64_t numel) {
  ParameterSpec spec;
  spec.name = name;
  spec.shape = {numel};
  parameters.declare({spec}, {numel});
}

// The ledger's calls at the site of dense gradients, for one of 1000 and thirty of two elements.
int64_t num_collectives(int64_t bucket_bytes) {
  MeshShape two;
  two.world_size = 2;
  int64_t calls = 0;
  run_ranks(two, [&](Groups& groups) {
    Parameters parameters(groups, Dtypes::fp64(), 1);
    declare_dense(parameters, "large", 1000);
    for (int i = 0; i < 30; ++i) {
      declare_dense(parameters, fmt::format("small.{}", i), 2);
    }
    reduce_gradients(parameters, bucket_bytes);
    for (const LedgerEntry& entry : groups.ledger().entries()) {
      EXPECT_EQ(entry.site, "gradients.dense");
      // Two ranks: half of twice the payload.
      EXPECT_EQ(entry.bytes, 8 * 1060);
      if (groups.rank() == 0) {
        calls += entry.calls;
      }
    }
  });
  return calls;
}

TEST(ReduceGradients, PacksSmallOnesAndReducesLargeOnesInPlace) {
  EXPECT_EQ(num_collectives(8000), 2);  // the large one; one bucket
  EXPECT_EQ(num_collectives(320), 3);   // thirty of 16 bytes: 20 fit
  EXPECT_EQ(num_collectives(16), 31);   // all in place
}

// Megabytes go another way through a group than small tensors, and two buckets travel at once.
TEST(ReduceGradients, SumsLargeGradientsSideBySide) {
  MeshShape two;
  two.world_size = 2;
  run_ranks(two, [](Groups& groups) {
    Parameters parameters(groups, Dtypes::fp64(), 1);
    for (int i = 0; i < 4; ++i) {
      declare_dense(parameters, fmt::format("large.{}", i), 200'000 + i);
      declare_dense(parameters, fmt::format("small.{}", i), 20'000 + i);
    }
    for (const auto& storage : parameters.storages()) {
      storage->gradient = contribution(*storage, groups.rank());
    }
    reduce_gradients(parameters);
    expect_sums(parameters);
  });
}

TEST(ReduceGradients, CopiesNothingOnOneRank) {
  const auto groups = Groups::single();
  Parameters parameters(*groups, Dtypes::fp64(), 1);
  declare_test_parameters(parameters);
  ParameterStorage& storage = *parameters.storages()[0];
  storage.gradient = contribution(storage, 0);
  const at::Tensor before = storage.gradient;
  reduce_gradients(parameters);
  EXPECT_TRUE(storage.gradient.is_same(before));
  EXPECT_TRUE(storage.gradient.equal(contribution(storage, 0)));
  EXPECT_TRUE(parameters.storages()[1]->gradient.equal(at::zeros({5}, at::kDouble)));
  EXPECT_TRUE(groups->ledger().entries().empty());
}

TEST(AbsorbGradients, AddsUpMicroBatchesUntilCleared) {
  const auto groups = Groups::single();
  Parameters parameters(*groups, Dtypes::bf16(), 1);
  declare_dense(parameters, "w", 2);
  declare_dense(parameters, "unused", 2);
  const ParameterStorage& storage = *parameters.storages()[0];
  for (const double factor : {2.0, 3.0}) {
    (storage.leaf * factor).sum().backward();
    absorb_gradients(parameters);
    EXPECT_FALSE(storage.leaf.grad().defined());
  }
  EXPECT_TRUE(storage.gradient.equal(at::full({2}, 5.0, at::kFloat)));
  EXPECT_FALSE(parameters.storages()[1]->gradient.defined());
  clear_gradients(parameters);
  EXPECT_FALSE(storage.gradient.defined());
}

}  // namespace
}  // namespace switchyard
