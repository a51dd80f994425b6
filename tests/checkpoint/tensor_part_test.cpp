#include "checkpoint/tensor_part.h"

#include <mutex>

#include <gtest/gtest.h>

#include <ATen/ATen.h>

#include "base/error.h"
#include "checkpoint/checkpoint_tests.h"
#include "checkpoint/test_model.h"
#include "parallel/launch.h"

namespace switchyard {
namespace {

TEST(ModelParts, ShareMemoryWithMastersAndBuffersUnderTheirNames) {
  const auto groups = Groups::single();
  const TestModel model(*groups, Dtypes::bf16(), 1);
  const std::vector<TensorPart> parts = model_parts(model.parameters);
  ASSERT_EQ(parts.size(), static_cast<size_t>(3 + kTestLayers * 10));
  EXPECT_EQ(parts[3].name, "layers.0.q");
  EXPECT_EQ(parts[4].name, "layers.0.k");
  EXPECT_EQ(parts[4].global_shape, (std::vector<int64_t>{4, 2, 8}));
  EXPECT_EQ(parts[4].values.scalar_type(), at::kFloat);
  parts[4].values.fill_(3);
  const at::Tensor fused = model.parameters.storages()[3]->master;  // q, k, v end to end
  EXPECT_EQ(fused.eq(3).sum().item<int64_t>(), 64);
  EXPECT_TRUE(fused.narrow(0, 128, 64).eq(3).all().item<bool>());
  EXPECT_EQ(parts.back().name, "layers.3.expert_bias");
  EXPECT_TRUE(parts.back().values.is_same(model.parameters.buffers().back().tensor));
}

TEST(StorageParts, NameWhatIsMissingOrOfAnotherSize) {
  const auto groups = Groups::single();
  const TestModel model(*groups, Dtypes::fp32(), 1);
  std::vector<at::Tensor> tensors = model.first_moments;
  const auto message = [&] {
    return message_of<ShapeError>([&] { storage_parts(model.parameters, "m.", tensors); });
  };
  EXPECT_EQ(message(), "");
  tensors[3] = at::zeros({5});
  EXPECT_EQ(message(),
            "m.layers.0.q has 5 elements, its parameter storage 256, of which this rank "
            "owns 256");
  tensors[3] = at::Tensor();
  EXPECT_EQ(message(), "m.layers.0.q: there is no such tensor");
  tensors.pop_back();
  EXPECT_EQ(message(), "m.*: 30 tensors for 31 parameter storages");
}

// Counts, over all ranks, how often each replica index of a box occurs: once each.
TEST(ModelParts, CountTheReplicasOfEachBox) {
  const MeshShape shape{
      .world_size = 8, .tensor = 2, .context = 2, .expert = 2, .expert_tensor = 2};
  std::mutex mutex;
  std::map<std::string, std::vector<int64_t>> times;
  std::map<std::string, int64_t> num_replicas;
  run_ranks(shape, [&](Groups& groups) {
    const TestModel model(groups, Dtypes::fp32(), 1);
    const std::lock_guard lock(mutex);
    for (const TensorPart& part : model_parts(model.parameters)) {
      const std::string box = fmt::format("{} {}", part.name, fmt::join(part.start, ","));
      auto& count = times[box];
      count.resize(static_cast<size_t>(part.num_replicas));
      ++count.at(static_cast<size_t>(part.replica_index));
      num_replicas[part.name] = part.num_replicas;
    }
  });
  for (const auto& [box, count] : times) {
    EXPECT_EQ(count, std::vector<int64_t>(count.size(), 1)) << box;
  }
  EXPECT_EQ(num_replicas.at("embedding"), 4);  // 8 ranks / tp 2
  EXPECT_EQ(num_replicas.at("layers.0.norm"), 8);
  EXPECT_EQ(num_replicas.at("layers.0.experts.up"), 2);    // 8 / (ep 2 x etp 2)
  EXPECT_EQ(num_replicas.at("layers.0.experts.bias"), 4);  // 8 / ep 2
  EXPECT_EQ(num_replicas.at("layers.0.expert_bias"), 8);
}

}  // namespace
}  // namespace switchyard
