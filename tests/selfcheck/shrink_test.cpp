#include "selfcheck/shrink.h"

#include <algorithm>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "config/layer_overrides.h"
#include "config/moe_layers.h"
#include "config/rules.h"
#include "support/small_model.h"

namespace switchyard {
namespace {

using testing::HasSubstr;

// In the shape of DeepSeek-V2: dense first layers, groups, 160 experts.
Config large_config() {
  Config config;
  config.model.num_layers = 60;
  config.model.hidden_size = 5120;
  config.model.ffn_hidden_size = 12288;
  config.model.num_attention_heads = 128;
  config.model.num_query_groups = 8;
  config.model.head_dim = 128;
  config.model.vocab_size = 102400;
  config.model.tie_embeddings = true;
  config.moe.num_experts = 160;
  config.moe.top_k = 6;
  config.moe.ffn_hidden_size = 1536;
  config.moe.first_dense_layers = 1;
  config.moe.shared_expert_ffn_hidden_size = 3072;
  config.moe.num_groups = 8;
  config.moe.group_top_k = 3;
  config.moe.group_score = GroupScore::kMax;
  config.moe.pre_softmax = true;
  config.parallel.tensor_size = 4;
  config.parallel.expert_size = 8;
  config.parallel.sequence_parallel = true;
  config.data.sequence_length = 4096;
  return config;
}

TEST(Shrink, KeepsEachKindOfLayerThatScans) {
  Config config = large_config();
  config.model.layer_pattern = "MEMEM*EGE-";
  config.moe.first_dense_layers = 0;
  config.mamba.num_groups = 8;
  config.parallel.context_size = 2;
  const ShrunkConfig shrunk = shrink(config);
  const Config& small = shrunk.config;
  EXPECT_EQ(small.model.layer_pattern, "M E * G -");
  EXPECT_EQ(small.mamba.num_groups, 4);  // two of each tensor rank, as several of each there
  EXPECT_EQ(small.mamba.num_heads, 16);
  EXPECT_EQ(small.delta_net.num_key_heads, 8);
  EXPECT_EQ(small.delta_net.num_value_heads, 16);
  EXPECT_LE(small.mamba.state_size * small.mamba.head_dim, 32);
}

TEST(Shrink, KeepsTheBranchesOfALargeModel) {
  const ShrunkConfig shrunk = shrink(large_config());
  const Config& small = shrunk.config;
  EXPECT_EQ(small.parallel.tensor_size, 2);
  EXPECT_EQ(small.parallel.expert_size, 2);
  EXPECT_TRUE(small.parallel.sequence_parallel);
  EXPECT_EQ(shrunk.num_ranks, 4);
  EXPECT_EQ(moe_layers(small), (std::vector<bool>{false, true}));
  EXPECT_EQ(small.moe.top_k, 6);
  EXPECT_EQ(small.moe.num_groups, 8);
  EXPECT_EQ(small.moe.num_experts, 16);  // two per group: 6 of 3 x 2
  EXPECT_GT(small.model.num_attention_heads, small.model.query_groups());
  EXPECT_TRUE(small.model.tie_embeddings);
  EXPECT_LE(small.model.hidden_size, 64);
  EXPECT_EQ(small.train.precision, Precision::kFp64);
}

TEST(Shrink, KeepsThePipeline) {
  Config config = large_config();
  config.parallel.tensor_size = 1;
  config.parallel.sequence_parallel = false;
  config.parallel.pipeline_size = 4;
  config.parallel.virtual_pipeline_size = 3;
  const Config even = shrink(config).config;
  EXPECT_EQ(even.parallel.pipeline_size, 2);
  EXPECT_EQ(even.parallel.virtual_pipeline_size, 3);
  EXPECT_EQ(even.model.num_layers, 6);
  EXPECT_EQ(even.parallel.pipeline_layout, "");
  config.parallel.pipeline_layout = "E|(t*6|)*10L";
  const Config alone = shrink(config).config;
  EXPECT_EQ(alone.model.num_layers, 4);
  EXPECT_EQ(alone.parallel.pipeline_layout, "E|t|t|t|t|L");
}

TEST(Shrink, PutsTheRanksOfAnExpertLayerOnSeveralNodes) {
  Config config = large_config();
  config.moe.dispatcher = DispatcherKind::kFlex;
  const ShrunkConfig wide = shrink(config);
  EXPECT_EQ(wide.config.parallel.expert_size, 4);
  EXPECT_EQ(wide.config.parallel.ranks_per_node, 2);
  EXPECT_EQ(wide.num_ranks, 8);
  config.parallel.expert_size = 2;
  config.parallel.ranks_per_node = 8;
  EXPECT_EQ(shrink(config).config.parallel.ranks_per_node, 1);
  config.parallel.order = "dp-tp-cp-ep-pp";
  EXPECT_EQ(shrink(config).config.parallel.ranks_per_node, 1);
}

TEST(Shrink, ReportsEverySettingThatItChanged) {
  const ShrunkConfig shrunk = shrink(large_config());
  const auto change =
      std::find_if(shrunk.changes.begin(), shrunk.changes.end(),
                   [](const SettingChange& one) { return one.name == "model.hidden_size"; });
  ASSERT_NE(change, shrunk.changes.end());
  EXPECT_EQ(change->before, "5120");
  EXPECT_EQ(change->after, std::to_string(shrunk.config.model.hidden_size));
}

TEST(Shrink, KeepsOneLayerOfEachKind) {
  Config config = large_config();
  config.attention.window = 1024;
  config.attention.window_layers = {"0-59/2"};
  config.moe.overrides = {"10-19: num_experts=64 ffn_hidden_size=512 num_groups=1"};
  const Config small = shrink(config).config;
  // Dense windowed; experts without and with window; overridden with and without.
  EXPECT_EQ(small.model.num_layers, 5);
  EXPECT_EQ(small.attention.window_layers, (std::vector<std::string>{"0", "2", "3"}));
  ASSERT_EQ(small.moe.overrides.size(), 1U);
  const MoeConfig overridden = moe_of_layer(small, 3);
  EXPECT_EQ(overridden.num_groups, 1);
  EXPECT_LE(overridden.num_experts, 8);
  EXPECT_NE(overridden.ffn_hidden_size, small.moe.ffn_hidden_size);
}

TEST(Shrink, SharesAKeyHeadAmongTensorRanksWhereTheModelDoes) {
  Config config = large_config();
  config.model.num_query_groups = 2;  // of 4 tensor ranks
  const Config small = shrink(config).config;
  EXPECT_EQ(small.model.query_groups(), 1);
  EXPECT_EQ(small.model.num_attention_heads, 2);
}

TEST(Shrink, LeavesContextRanksTheHeadsThatTheyExchange) {
  struct Case {
    int64_t groups;
    int64_t expected_groups;
    int64_t expected_heads;
  };
  // Of 4 tensor ranks x 3 context ranks: cut by both; cut by tensor ranks and copied to context
  // ranks; copied to all.
  for (const Case& one : {Case{24, 12, 24}, {4, 2, 6}, {2, 1, 6}}) {
    Config config = large_config();
    config.model.num_attention_heads = 48;
    config.model.num_query_groups = one.groups;
    config.parallel.context_size = 3;
    config.parallel.context_exchange = ContextExchange::kAllToAll;
    config.data.sequence_length = 4800;
    config.parallel.expert_size = 1;
    const ShrunkConfig shrunk = shrink(config);
    EXPECT_EQ(shrunk.config.parallel.context_size, 3);
    EXPECT_EQ(shrunk.config.parallel.context_exchange, ContextExchange::kAllToAll);
    EXPECT_EQ(shrunk.config.model.query_groups(), one.expected_groups);
    EXPECT_EQ(shrunk.config.model.num_attention_heads, one.expected_heads);
    EXPECT_EQ(shrunk.num_ranks, 6);
  }
}

TEST(Shrink, RunsADataParallelPairWhereNoAxisIsSet) {
  EXPECT_EQ(shrink(small_config()).num_ranks, 2);
}

TEST(Shrink, LeavesRoomForPartlyRotatedHeads) {
  Config config = large_config();
  config.rope.partial_factor = 0.25;
  const Config small = shrink(config).config;
  EXPECT_EQ(small.model.head_dim, 8);
  EXPECT_EQ(small.rotary_dim(), 2);
}

TEST(Shrink, RefusesAxesThatNeedTooManyRanks) {
  Config config = large_config();
  config.model.num_attention_heads = 30;
  config.model.num_query_groups = 5;
  config.model.vocab_size = 100;
  config.model.ffn_hidden_size = 100;
  config.moe.shared_expert_ffn_hidden_size = 100;
  config.data.sequence_length = 100;
  config.parallel.tensor_size = 5;
  config.parallel.expert_size = 2;
  try {
    shrink(config);
    FAIL();
  } catch (const ConfigError& error) {
    EXPECT_THAT(error.what(), HasSubstr("needs 10 ranks"));
  }
}

// hidden_size shrinks more than the number of heads: the width cannot be derived from the small
// one.
TEST(Shrink, DerivesTheWidthOfAHeadFromTheWholeModel) {
  Config config = large_config();
  config.model.head_dim = 0;
  config.model.hidden_size = 2048;
  config.model.num_attention_heads = 16;
  config.model.num_query_groups = 0;
  EXPECT_EQ(shrink(config).config.model.head_dim, 4);
}

TEST(ShrinkTraining, KeepsPrecisionAndTheOptimizerOnOneRank) {
  Config config = large_config();
  config.train.precision = Precision::kBf16;
  config.train.global_batch_size = 512;
  config.train.micro_batch_size = 4;
  config.optimizer.lr = 3e-4;
  config.optimizer.warmup_steps = 2000;
  config.parallel.data_sharding = DataSharding::kOptimizer;
  const ShrunkConfig shrunk = shrink_training(config);
  const Config& small = shrunk.config;
  EXPECT_EQ(shrunk.num_ranks, 1);
  EXPECT_EQ(small.parallel.tensor_size, 1);
  EXPECT_EQ(small.parallel.expert_size, 1);
  EXPECT_EQ(small.parallel.data_sharding, DataSharding::kOptimizer);
  EXPECT_EQ(small.train.precision, Precision::kBf16);
  EXPECT_EQ(small.train.steps, 2);
  EXPECT_EQ(small.train.global_batch_size, 2 * small.train.micro_batch_size);
  EXPECT_EQ(small.optimizer.lr, 3e-4);
  EXPECT_EQ(small.optimizer.warmup_steps, 1);
  EXPECT_EQ(moe_layers(small), (std::vector<bool>{false, true}));
  EXPECT_LE(small.model.hidden_size, 64);
}

}  // namespace
}  // namespace switchyard
