#include "model/rotary.h"

#include <cmath>

#include <gtest/gtest.h>

#include <ATen/ATen.h>

namespace switchyard {
namespace {

Config dynamic_config() {
  Config config;
  config.model.hidden_size = 16;
  config.model.num_attention_heads = 2;
  config.model.max_position = 8;
  config.rope.type = RopeType::kDynamic;
  config.rope.factor = 2;
  return config;
}

// The angles' cosines of position 1: with cos they tell the frequencies.
at::Tensor cosines(const RotaryTable& table) {
  return table.cosine[1].clone();
}

TEST(Rotary, StretchesDynamicFrequenciesForTheLongestSequenceOfThisBatchAlone) {
  Rotary rotary(dynamic_config(), at::kDouble);
  const at::Tensor before = cosines(rotary.table(8));
  const at::Tensor longer = cosines(rotary.table(12));
  const at::Tensor longest = cosines(rotary.table(16));
  EXPECT_TRUE(at::equal(cosines(rotary.table(12)), longer));
  EXPECT_TRUE(at::equal(cosines(rotary.table(3)), before));
  EXPECT_FALSE(at::equal(longer, before));
  EXPECT_FALSE(at::equal(longest, longer));
  // The base is multiplied by (2 x 12 / 8 - 1)^(8 / 6), and f_1 = base^(-2 / 8).
  const double base = 10000 * std::pow(2.0, 8.0 / 6);
  EXPECT_NEAR(longer[1].item<double>(), std::cos(std::pow(base, -0.25)), 1e-15);
}

TEST(Rotary, ReachesAsFarAsTheLongestSequence) {
  Config config = dynamic_config();
  for (const RopeType type : {RopeType::kDefault, RopeType::kDynamic}) {
    config.rope.type = type;
    Rotary rotary(config, at::kFloat);
    for (const int64_t longest : {1, 3, 9, 8, 100, 101}) {
      EXPECT_GE(rotary.table(longest).max_position(), longest);
    }
  }
}

TEST(Rotary, MultipliesCosinesAndSinesByTheAttentionFactor) {
  Config config = dynamic_config();
  config.rope.type = RopeType::kYarn;
  config.rope.original_max_position = 8;
  config.rope.attention_factor = 1.5;
  Rotary rotary(config, at::kDouble);
  const RotaryTable& table = rotary.table(4);
  EXPECT_TRUE(
      at::allclose(table.cosine.square() + table.sine.square(), at::full_like(table.cosine, 2.25)));
}

TEST(Rotary, TurnsTheFirstPartOfAHead) {
  Config config = dynamic_config();
  config.rope.type = RopeType::kDefault;
  config.rope.partial_factor = 0.5;
  Rotary rotary(config, at::kDouble);
  EXPECT_EQ(rotary.table(4).rotary_dim(), 4);
}

TEST(Rotary, TurnsNothingWhereNoFeatureIsRotated) {
  Config config = dynamic_config();
  config.rope.partial_factor = 0;
  Rotary rotary(config, at::kFloat);
  EXPECT_EQ(rotary.table(40).rotary_dim(), 0);
}

// Base and nothing else: scaling is for the layers that see everything.
TEST(Rotary, OfLayersWithAWindowIsPlain) {
  Config config = dynamic_config();
  config.rope.type = RopeType::kLinear;
  config.rope.factor = 8;
  config.rope.window_base = 77;
  Config plain = dynamic_config();
  plain.rope.type = RopeType::kDefault;
  plain.rope.base = 77;
  Rotary of_windows(with_window_rope(config), at::kDouble);
  Rotary expected(plain, at::kDouble);
  EXPECT_TRUE(at::equal(cosines(of_windows.table(9)), cosines(expected.table(9))));
}

}  // namespace
}  // namespace switchyard
