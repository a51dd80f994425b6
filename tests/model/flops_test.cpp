#include "model/flops.h"

#include <gtest/gtest.h>

namespace switchyard {
namespace {

TEST(TrainingFlops, CountsEveryMatrixProductOfTheTokensPath) {
  Config config;
  config.model.num_layers = 3;
  config.model.hidden_size = 10;
  config.model.ffn_hidden_size = 20;
  config.model.num_attention_heads = 4;
  config.model.num_query_groups = 2;
  config.model.head_dim = 5;
  config.model.vocab_size = 100;
  config.moe.num_experts = 8;
  config.moe.top_k = 2;
  config.moe.ffn_hidden_size = 6;
  config.moe.shared_expert_ffn_hidden_size = 7;
  config.moe.first_dense_layers = 1;
  // Multiply-adds per token: q 10 x 20, k and v 10 x 10 each, o 20 x 10; scores and values with the
  // mean of (7 + 1) / 2 keys, 20 x 4 each; dense 3 x 10 x 20; MoE 3 x 10 x (2 x 6 + 7) + 10 x 8;
  // head 10 x 100.
  const double attention = 200 + 100 + 100 + 200 + 2 * 20 * 4;
  const double per_token = 3 * attention + 600 + 2 * (570 + 80) + 1000;
  EXPECT_DOUBLE_EQ(training_flops(config, 50, 7), 2 * 3 * per_token * 50);
}

TEST(TrainingFlops, CountsTheKeysThatAWindowLeaves) {
  Config config;
  config.model.num_layers = 1;
  config.model.hidden_size = 8;
  config.model.num_attention_heads = 2;
  const double all = training_flops(config, 10, 10);
  config.attention.window = 10;
  EXPECT_DOUBLE_EQ(training_flops(config, 10, 10), all);
  config.attention.window = 3;
  // Keys seen by the ten tokens: 1 + 2 + 3 x 8 = 27 instead of 55; each costs 2 x 8 multiply-adds.
  EXPECT_DOUBLE_EQ(training_flops(config, 10, 10), all - 6 * 2 * 8 * (55 - 27));
}

TEST(TrainingFlops, CountsScansAsTheirRecurrences) {
  Config config;
  config.model.num_layers = 1;
  config.model.hidden_size = 10;
  config.model.ffn_hidden_size = 20;
  config.model.layer_pattern = "-";
  const double without = training_flops(config, 50, 7);
  config.mamba.num_heads = 6;
  config.mamba.head_dim = 4;
  config.mamba.num_groups = 2;
  config.mamba.state_size = 5;
  config.model.layer_pattern = "M- ";
  // Into z and x 24 each, B and C 10 each, dt 6; out of 24; states of 24 x 5 written and read.
  const double mamba2 = 10 * (48 + 20 + 6) + 24 * 10 + 2 * 24 * 5;
  EXPECT_DOUBLE_EQ(training_flops(config, 50, 7), without + 6 * mamba2 * 50);
  config.mamba.inner_size = 12;
  config.mamba.dt_rank = 3;
  config.model.layer_pattern = "S- ";
  // x, z and out of 12; a time step of rank 3, B and C; states of 12 x 5 written and read.
  const double mamba1 = 3 * 10 * 12 + 12 * (3 + 10) + 3 * 12 + 2 * 12 * 5;
  EXPECT_DOUBLE_EQ(training_flops(config, 50, 7), without + 6 * mamba1 * 50);
  config.delta_net.num_key_heads = 2;
  config.delta_net.num_value_heads = 4;
  config.delta_net.key_head_dim = 3;
  config.delta_net.value_head_dim = 7;
  config.model.layer_pattern = "G- ";
  // Into q and k 6 each, v and z 28 each, b and a 4 each; out of 28; states of 4 x 3 x 7, three
  // times.
  const double delta_net = 10 * (12 + 56 + 8) + 28 * 10 + 3 * 4 * 3 * 7;
  EXPECT_DOUBLE_EQ(training_flops(config, 50, 7), without + 6 * delta_net * 50);
}

}  // namespace
}  // namespace switchyard
