#include "checkpoint/rank_file.h"

#include <gtest/gtest.h>

#include <ATen/ATen.h>

#include "base/error.h"
#include "checkpoint/checkpoint_tests.h"
#include "checkpoint/safetensors.h"

namespace switchyard {
namespace {

TEST(BoxOf, RefusesAPartThatReachesOutsideItsTensor) {
  const auto message = [](const TensorPart& part) {
    return message_of<ShapeError>([&] { box_of(part); });
  };
  EXPECT_EQ(message({"x", {4, 6}, {2, 3}, at::zeros({2, 3})}), "");
  EXPECT_EQ(message({"x", {4, 6}, {2, 4}, at::zeros({2, 3})}),
            "\"x\" [4, 6]: values [2, 3] from [2, 4] reach outside it");
  EXPECT_NE(message({"x", {4, 6}, {-1, 0}, at::zeros({2, 3})}), "");
  EXPECT_NE(message({"x", {4, 6}, {0}, at::zeros({2, 3})}), "");
  EXPECT_NE(message({"x", {4, 6}, {0, 0}, at::zeros({2})}), "");
  EXPECT_EQ(message({"x", {4, 6}, {0, 0}, at::Tensor()}), "\"x\" has no values");
}

TEST(ShareToSave, CutsALargePartByRowsAmongItsReplicas) {
  const at::Tensor values = at::arange(5 * 65'536, at::kFloat).view({5, 65'536});  // 1.25 MB
  int64_t next = 7;
  for (int64_t replica = 0; replica < 3; ++replica) {
    const auto share = share_to_save({"x", {20, 65'536}, {7, 0}, values, 3, replica});
    ASSERT_TRUE(share);
    EXPECT_EQ(share->start, (std::vector<int64_t>{next, 0}));
    EXPECT_TRUE(share->values.equal(values.narrow(0, next - 7, share->values.size(0))));
    next += share->values.size(0);
  }
  EXPECT_EQ(next, 12);
}

TEST(ShareToSave, GivesASmallPartToOneReplicaAndNotAlwaysTheSame) {
  std::vector<int> times(4, 0);
  for (int tensor = 0; tensor < 100; ++tensor) {
    int num_writers = 0;
    for (int64_t replica = 0; replica < 4; ++replica) {
      const auto share =
          share_to_save({fmt::format("x{}", tensor), {3}, {0}, at::ones({3}), 4, replica});
      num_writers += share ? 1 : 0;
      times[static_cast<size_t>(replica)] += share ? 1 : 0;
    }
    EXPECT_EQ(num_writers, 1);
  }
  for (const int count : times) {
    EXPECT_GT(count, 10);
  }
}

TEST(ShareToSave, SkipsAnEmptyShareButNotAnEmptyTensor) {
  EXPECT_FALSE(share_to_save({"x", {3, 2}, {3, 0}, at::empty({0, 2})}));
  EXPECT_TRUE(share_to_save({"x", {3, 0}, {0, 0}, at::empty({3, 0})}));
}

TEST(WriteRankFile, CallsAWholeTensorByItsNameAndASliceByItsPlace) {
  const TemporaryFolder folder;
  write_rank_file(folder.path(), 3,
                  shares_to_save({{"whole", {2, 3}, {0, 0}, at::ones({2, 3})},
                                  {"slice", {4, 6}, {2, 3}, at::ones({2, 3})},
                                  {"scalar", {}, {}, at::ones({})}}));
  const SafetensorsFile file(folder / "rank_00003.safetensors");
  ASSERT_EQ(file.entries().size(), 3U);
  EXPECT_EQ(file.entries()[0].name, "whole");
  EXPECT_EQ(file.entries()[1].name, "slice@2,3");
  EXPECT_EQ(file.entries()[2].name, "scalar");
  EXPECT_TRUE(std::filesystem::exists(folder / "rank_00003.index.json"));
}

}  // namespace
}  // namespace switchyard
