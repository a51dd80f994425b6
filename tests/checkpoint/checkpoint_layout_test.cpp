#include <atomic>
#include <mutex>

#include <gtest/gtest.h>

#include <ATen/ATen.h>

#include "base/random.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/checkpoint_tests.h"
#include "checkpoint/safetensors.h"
#include "checkpoint/test_model.h"
#include "parallel/launch.h"

namespace switchyard {
namespace {

constexpr uint64_t kSaved = 1;  // seed of the values that are saved
constexpr uint64_t kOther = 2;  // of what is there before loading

struct SavedLayout {
  MeshShape shape;
  DataSharding sharding = DataSharding::kNone;
  Dtypes dtypes = Dtypes::fp32();

  TestModel model(const Groups& groups, uint64_t seed) const {
    return TestModel(groups, dtypes, seed, sharding);
  }
};

void save_in(const SavedLayout& layout, const std::filesystem::path& path) {
  run_ranks(layout.shape, [&](Groups& groups) {
    const TestModel model = layout.model(groups, kSaved);
    write_checkpoint(path, record_at(1), model.parts(), groups[GroupName::kWorld]);
  });
}
void save_in(const MeshShape& shape, const std::filesystem::path& path) {
  save_in(SavedLayout{shape}, path);
}

// Loads into a model of other values, compares every part on every rank with what a model of the
// saved values has there, and saves again.
void load_in(const SavedLayout& layout, const std::filesystem::path& path,
             const std::filesystem::path& copy) {
  std::mutex mutex;
  run_ranks(layout.shape, [&](Groups& groups) {
    const TestModel loaded = layout.model(groups, kOther);
    const TestModel expected = layout.model(groups, kSaved);
    load_checkpoint(path, loaded.parts(), groups[GroupName::kWorld]);
    const std::string difference = first_difference(loaded.parts(), expected.parts());
    {
      const std::lock_guard lock(mutex);
      EXPECT_EQ(difference, "") << "rank " << groups.rank();
    }
    write_checkpoint(copy, record_at(1), loaded.parts(), groups[GroupName::kWorld]);
  });
}
void load_in(const MeshShape& shape, const std::filesystem::path& path,
             const std::filesystem::path& copy) {
  load_in(SavedLayout{shape}, path, copy);
}

std::string describe(const MeshShape& shape) {
  return fmt::format("world {} tp {} cp {} pp {} ep {} etp {}", shape.world_size, shape.tensor,
                     shape.context, shape.pipeline, shape.expert, shape.expert_tensor);
}

TEST(CheckpointLayout, FourRanksToOneAndBack) {
  const TemporaryFolder folder;
  const MeshShape four{.world_size = 4, .tensor = 2, .expert = 2};
  save_in(four, folder / "four");
  load_in(MeshShape{}, folder / "four", folder / "one");
  load_in(four, folder / "one", folder / "again");
  // Written by the same layout, the same bytes: files, indexes and record.
  for (const auto& entry : std::filesystem::directory_iterator(folder / "four")) {
    EXPECT_EQ(file_bytes(entry.path()), file_bytes(folder / "again" / entry.path().filename()))
        << entry.path();
  }
}

// The one-rank checkpoint read by the safetensors reader alone, against initial values.
TEST(CheckpointLayout, OneRankHoldsTheLogicalTensors) {
  const TemporaryFolder folder;
  save_in(MeshShape{.world_size = 4, .tensor = 2, .expert = 2, .expert_tensor = 2},
          folder / "four");
  load_in(MeshShape{}, folder / "four", folder / "one");
  const SafetensorsFile file(folder / "one/rank_00000.safetensors");
  const auto groups = Groups::single();
  const TestModel expected(*groups, Dtypes::fp32(), kSaved);
  size_t num_compared = 0;
  for (const TensorPart& part : expected.parts()) {
    EXPECT_TRUE(file.tensor(part.name).equal(part.values)) << part.name;
    ++num_compared;
  }
  EXPECT_EQ(file.entries().size(), num_compared);
}

TEST(CheckpointLayout, TensorAndExpertShardsIntoOtherCuts) {
  const TemporaryFolder folder;
  const std::vector<MeshShape> shapes = {
      {.world_size = 4, .tensor = 4},
      {.world_size = 4, .expert = 4},
      {.world_size = 4, .expert = 2, .expert_tensor = 2},
      {.world_size = 4, .tensor = 2, .context = 2, .expert_tensor = 4},
      {.world_size = 4, .pipeline = 4},
      {.world_size = 3, .expert_tensor = 3},
      {.world_size = 6, .tensor = 2, .pipeline = 3, .expert_tensor = 2}};
  save_in(MeshShape{}, folder / "0");
  for (size_t i = 0; i < shapes.size(); ++i) {
    SCOPED_TRACE(describe(shapes[i]));
    load_in(shapes[i], folder / std::to_string(i), folder / std::to_string(i + 1));
  }
}

// Fifty pairs of neighbours in a chain of layouts; what one rank reads at the end is what one rank
// would have saved, byte for byte.
TEST(CheckpointLayout, AnyLayoutIntoAnyOther) {
  constexpr int kPairs = 50;
  const RandomStream stream(5, "layouts");
  uint64_t next = 0;
  const auto one_of = [&](const std::vector<int64_t>& choices) {
    return choices[stream.below(next++, choices.size())];
  };
  const auto draw = [&]() -> SavedLayout {
    while (true) {
      MeshShape shape{.world_size = one_of({1, 2, 4, 6, 8}),
                      .tensor = one_of({1, 2, 4}),
                      .context = one_of({1, 2}),
                      .pipeline = one_of({1, 2, 3}),
                      .expert = one_of({1, 2, 4}),
                      .expert_tensor = one_of({1, 2, 4})};
      shape.order = one_of({0, 1}) == 0 ? "tp-cp-ep-dp-pp" : "pp-dp-cp-tp-ep";
      const auto sharding = static_cast<DataSharding>(one_of({0, 1, 2, 3}));
      const auto dtypes = one_of({0, 1}) == 0 ? Dtypes::fp32() : Dtypes::bf16();
      const int64_t stage = shape.world_size / shape.pipeline;
      if (shape.world_size % shape.pipeline == 0 && stage % (shape.tensor * shape.context) == 0 &&
          stage % (shape.expert * shape.expert_tensor) == 0) {
        try {
          Mesh{shape};
          return {shape, sharding, dtypes};
        } catch (const ConfigError&) {  // the two foldings disagree on the stages: draw again
        }
      }
    }
  };
  const TemporaryFolder folder;
  save_in(draw(), folder / "0");
  for (int pair = 0; pair < kPairs; ++pair) {
    const SavedLayout layout = draw();
    SCOPED_TRACE(describe(layout.shape));
    load_in(layout, folder / std::to_string(pair), folder / std::to_string(pair + 1));
    std::filesystem::remove_all(folder / std::to_string(pair));
  }
  load_in(MeshShape{}, folder / std::to_string(kPairs), folder / "one");
  save_in(MeshShape{}, folder / "expected");
  EXPECT_EQ(file_bytes(folder / "one/rank_00000.safetensors"),
            file_bytes(folder / "expected/rank_00000.safetensors"));
}

// Every rank writes its own elements of the moments, and in mixed precision of the masters.
TEST(CheckpointLayout, ShardedStateIsSavedByItsOwners) {
  const TemporaryFolder folder;
  const MeshShape four{.world_size = 4, .tensor = 2, .expert = 2};
  for (const Dtypes& dtypes : {Dtypes::fp32(), Dtypes::bf16()}) {
    for (const DataSharding sharding :
         {DataSharding::kOptimizer, DataSharding::kGradients, DataSharding::kParameters}) {
      const SavedLayout sharded{four, sharding, dtypes};
      save_in(sharded, folder / "sharded");
      load_in(MeshShape{}, folder / "sharded", folder / "one");
      load_in(sharded, folder / "one", folder / "again");
      for (const auto& entry : std::filesystem::directory_iterator(folder / "sharded")) {
        EXPECT_EQ(file_bytes(entry.path()), file_bytes(folder / "again" / entry.path().filename()))
            << entry.path();
      }
      for (const char* name : {"sharded", "one", "again"}) {
        std::filesystem::remove_all(folder / name);
      }
    }
  }
}

TEST(CheckpointLayout, ReplicasShareTheWorkOfSaving) {
  const TemporaryFolder folder;
  save_in(MeshShape{.world_size = 4}, folder / "four");
  const auto total = static_cast<double>([&] {
    const auto groups = Groups::single();
    int64_t bytes = 0;
    for (const TensorPart& part : TestModel(*groups, Dtypes::fp32(), kSaved).parts()) {
      bytes += static_cast<int64_t>(part.values.nbytes());
    }
    return bytes;
  }());
  for (int rank = 0; rank < 4; ++rank) {
    const auto size = static_cast<double>(
        std::filesystem::file_size(folder / fmt::format("four/rank_0000{}.safetensors", rank)));
    EXPECT_NEAR(size, total / 4, total / 50) << rank;
  }
}

// Uneven shards, as an optimizer that cuts its state over all ranks may have them.
TEST(CheckpointLayout, UnevenShardsIntoOtherUnevenShards) {
  const TemporaryFolder folder;
  const at::Tensor whole = at::arange(7 * 11, at::kDouble).view({7, 11});
  const auto part_of = [&](int64_t size, int64_t rank) {
    const ShardRange rows = shard_range(7, size, rank);
    return TensorPart{"x", {7, 11}, {rows.begin, 0}, whole.narrow(0, rows.begin, rows.size())};
  };
  run_ranks({.world_size = 5}, [&](Groups& groups) {
    write_checkpoint(folder / "x", record_at(1), {part_of(5, groups.rank())},
                     groups[GroupName::kWorld]);
  });
  std::mutex mutex;
  run_ranks({.world_size = 3}, [&](Groups& groups) {
    const ShardRange columns = shard_range(11, 3, groups.rank());
    const at::Tensor values = at::zeros({7, columns.size()}, at::kDouble);
    load_checkpoint(folder / "x", {{"x", {7, 11}, {0, columns.begin}, values}},
                    groups[GroupName::kWorld]);
    const std::lock_guard lock(mutex);
    EXPECT_TRUE(values.equal(whole.narrow(1, columns.begin, columns.size())));
  });
}

// Runs `body` on two ranks, each of which must throw a CheckpointError; returns rank 0's message.
std::string refusal_of_both(const std::function<void(const Group& world)>& body) {
  std::vector<std::string> messages(2);
  run_ranks({.world_size = 2}, [&](Groups& groups) {
    messages[static_cast<size_t>(groups.rank())] =
        message_of<CheckpointError>([&] { body(groups[GroupName::kWorld]); });
  });
  EXPECT_EQ(messages[0], messages[1]);
  return messages[0];
}

TEST(CheckpointLayout, AGapOrAnOverlapIsNeverSaved) {
  const TemporaryFolder folder;
  save_in(MeshShape{}, folder / "step_1");
  const auto save = [&](const std::function<TensorPart(int64_t rank)>& part) {
    return refusal_of_both([&](const Group& world) {
      save_checkpoint(folder.path(), record_at(2), {part(world.rank())}, world, 1);
    });
  };
  EXPECT_EQ(
      save([](int64_t rank) {
        return TensorPart{"x", {5}, {2 * rank}, at::zeros({2})};
      }),
      "rank 0: what was written is not a checkpoint: tensor \"x\" [5] is incomplete: 1 of its "
      "elements are in no file");
  EXPECT_EQ(
      save([](int64_t) {
        return TensorPart{"x", {2}, {0}, at::zeros({2})};
      }),
      "rank 0: what was written is not a checkpoint: tensor \"x\" [2] is there twice: [0:2] of "
      "rank_00000.safetensors and [0:2] of rank_00001.safetensors overlap");
  EXPECT_EQ(save([](int64_t rank) {
              return TensorPart{"x", {4}, {3 * rank}, at::zeros({2})};
            }),
            "rank 1: \"x\" [4]: values [2] from [3] reach outside it");
  // Nothing is left of them, and what was there is.
  EXPECT_EQ(*find_latest(folder.path()), folder / "step_1");
  const std::filesystem::directory_iterator entries(folder.path());
  EXPECT_EQ(std::distance(begin(entries), end(entries)), 1);
}

TEST(CheckpointLayout, ATensorThatNoRankReadsIsRefusedOnAll) {
  const TemporaryFolder folder;
  const std::vector<TensorPart> both{{"a", {2}, {0}, at::ones({2})},
                                     {"b", {2}, {0}, at::ones({2})}};
  const auto groups = Groups::single();
  write_checkpoint(folder / "x", record_at(1), both, (*groups)[GroupName::kWorld]);
  run_ranks({.world_size = 2}, [&](Groups& ranks) {  // each reads one, as pipeline stages do
    load_checkpoint(folder / "x", {both[static_cast<size_t>(ranks.rank())]},
                    ranks[GroupName::kWorld]);
  });
  EXPECT_EQ(
      refusal_of_both([&](const Group& world) { load_checkpoint(folder / "x", {both[0]}, world); }),
      (folder / "x").string() +
          ": holds tensor \"b\", which this model does not have: it "
          "belongs to a model of another shape");
}

}  // namespace
}  // namespace switchyard
