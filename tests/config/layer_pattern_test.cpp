#include "config/layer_pattern.h"

#include <gtest/gtest.h>

#include "config/example.h"

namespace switchyard {
namespace {

Config with_pattern(const std::string& pattern, int64_t num_layers) {
  Config config;
  config.model.num_layers = num_layers;
  config.model.layer_pattern = pattern;
  return config;
}

// Written out again, each layer a word.
std::string read(const std::string& pattern, int64_t num_layers) {
  return layer_pattern_of(layer_kinds(with_pattern(pattern, num_layers)));
}

TEST(LayerPattern, WithoutBlanksHasALayerPerLetter) {
  EXPECT_EQ(read("MEM*-", 5), "M E M * -");
  const auto layers = layer_kinds(with_pattern("*-", 2));
  EXPECT_EQ(layers[0].mixers, std::vector{MixerKind::kAttention});
  EXPECT_EQ(layers[0].feed_forward, FeedForward::kNone);
  EXPECT_TRUE(layers[1].mixers.empty());
  EXPECT_EQ(layers[1].feed_forward, FeedForward::kDense);
}

TEST(LayerPattern, WithBlanksHasALayerPerWord) {
  EXPECT_EQ(read("GE GE  *E ", 3), "GE GE *E");
  EXPECT_EQ(read("M*- ", 1), "M*- ");
  const auto layers = layer_kinds(with_pattern("M*- ", 1));
  EXPECT_EQ(layers[0].mixers, (std::vector{MixerKind::kMamba2, MixerKind::kAttention}));
  EXPECT_TRUE(layers[0].has(MixerKind::kMamba2));
  EXPECT_FALSE(layers[0].has(MixerKind::kMamba1));
}

TEST(LayerPattern, IsRepeatedToTheNumberOfLayers) {
  EXPECT_EQ(read("S-", 6), "S - S - S -");
  EXPECT_EQ(read("GE *E", 4), "GE *E GE *E");
}

TEST(LayerPattern, IsReadBackAsItWasWritten) {
  for (const char* pattern : {"* - M E", "*E *-", "GM- ", "S"}) {
    const std::string written = read(pattern, pattern[0] == 'S' ? 1 : 4);
    EXPECT_EQ(read(written, 4), read(pattern, 4)) << pattern;
  }
}

TEST(LayerPattern, EmptyMeansAttentionAndAnMlpOrExperts) {
  Config config = with_pattern("", 4);
  EXPECT_EQ(layer_pattern_of(layer_kinds(config)), "*- *- *- *-");
  config.moe.num_experts = 8;
  config.moe.first_dense_layers = 1;
  EXPECT_EQ(layer_pattern_of(layer_kinds(config)), "*- *E *E *E");
  config.moe.layers = {"0-3/2"};
  EXPECT_EQ(layer_pattern_of(layer_kinds(config)), "*- *- *E *-");
}

TEST(LayerPattern, SaysWhatIsWrongWithIt) {
  const auto mistake = [](const std::string& pattern) {
    return wrong_layer_pattern(with_pattern(pattern, 4));
  };
  EXPECT_EQ(mistake("*-*E"), "");
  EXPECT_EQ(mistake("*-X-"), "model.layer_pattern has \"X\": the letters are * M S G - E");
  EXPECT_EQ(mistake("-* *-"),
            "model.layer_pattern has the layer \"-*\": - or E is one letter, and the last");
  EXPECT_EQ(mistake("*-E *-"),
            "model.layer_pattern has the layer \"*-E\": - or E is one letter, and the last");
  EXPECT_EQ(mistake("MM- *-"),
            "model.layer_pattern has the layer \"MM-\": at most two of * M S G, different ones, "
            "stand side by side");
  EXPECT_EQ(mistake("MSG *-"),
            "model.layer_pattern has the layer \"MSG\": at most two of * M S G, different ones, "
            "stand side by side");
  EXPECT_EQ(mistake("*-*"),
            "model.layer_pattern has 3 layers: model.num_layers (4) must be a multiple");
  EXPECT_EQ(mistake(" "),
            "model.layer_pattern has 0 layers: model.num_layers (4) must be a multiple");
  EXPECT_EQ(message_of<ConfigError>([] { layer_kinds(with_pattern("*-*", 4)); }),
            "model.layer_pattern has 3 layers: model.num_layers (4) must be a multiple");
}

}  // namespace
}  // namespace switchyard
