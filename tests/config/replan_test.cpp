#include "config/replan.h"

#include <gtest/gtest.h>

namespace switchyard {
namespace {

using Changes = std::vector<std::pair<std::string, int64_t>>;

// A model that every size up to 8 divides.
Config config_of(int64_t tensor, int64_t expert, int64_t global_batch) {
  Config config;
  config.model.num_layers = 2;
  config.model.hidden_size = 64;
  config.model.num_attention_heads = 8;
  config.model.ffn_hidden_size = 64;
  config.moe.num_experts = 8;
  config.moe.ffn_hidden_size = 64;
  config.train.steps = 1;
  config.train.global_batch_size = global_batch;
  config.parallel.tensor_size = tensor;
  config.parallel.expert_size = expert;
  return config;
}

TEST(Replan, LeavesOutDataParallelRanksFirst) {
  const auto plan = replan(config_of(2, 1, 12), 1, 7);
  ASSERT_TRUE(plan);
  EXPECT_EQ(plan->num_ranks, 6);
  EXPECT_EQ(plan->changes, Changes());
}

TEST(Replan, KeepsTheGlobalBatch) {
  // 3 data-parallel ranks do not divide 8 sequences.
  const auto plan = replan(config_of(1, 1, 8), 1, 3);
  ASSERT_TRUE(plan);
  EXPECT_EQ(plan->num_ranks, 2);
}

TEST(Replan, ChangesASizeWhenItMust) {
  const auto plan = replan(config_of(2, 4, 8), 1, 3);
  ASSERT_TRUE(plan);
  EXPECT_EQ(plan->num_ranks, 2);
  EXPECT_EQ(plan->changes, (Changes{{"parallel.expert_size", 2}}));
}

TEST(Replan, FindsNothingBelowTheFewest) {
  EXPECT_FALSE(replan(config_of(4, 1, 8), 3, 3));
  EXPECT_FALSE(replan(config_of(4, 1, 8), 4, 3));
}

}  // namespace
}  // namespace switchyard
