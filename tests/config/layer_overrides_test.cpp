#include "config/layer_overrides.h"

#include <gtest/gtest.h>

#include "config/example.h"
#include "config/rules.h"
#include "config/warnings.h"

namespace switchyard {
namespace {

Config config_with(const std::vector<std::string>& overrides) {
  Config config;
  config.model.num_layers = 8;
  config.model.hidden_size = 64;
  config.model.ffn_hidden_size = 64;
  config.model.num_attention_heads = 4;
  config.model.vocab_size = 64;
  config.moe.num_experts = 8;
  config.moe.top_k = 2;
  config.moe.ffn_hidden_size = 96;
  config.moe.first_dense_layers = 1;
  config.moe.overrides = overrides;
  return config;
}

using Lines = std::vector<std::string>;

TEST(LayerOverrides, ChangeTheSettingsOfTheirLayers) {
  const Config config = config_with(
      {"4-7: num_experts=16 ffn_hidden_size=64", "2, 5:  score_function=sigmoid top_k=1"});
  const auto summary = [&](int64_t layer) {
    const MoeConfig moe = moe_of_layer(config, layer);
    return std::tuple{moe.num_experts, moe.top_k, moe.ffn_hidden_size, moe.score_function};
  };
  EXPECT_EQ(summary(3), (std::tuple{8, 2, 96, ScoreFunction::kSoftmax}));
  EXPECT_EQ(summary(2), (std::tuple{8, 1, 96, ScoreFunction::kSigmoid}));
  EXPECT_EQ(summary(4), (std::tuple{16, 2, 64, ScoreFunction::kSoftmax}));
  EXPECT_EQ(summary(5), (std::tuple{16, 1, 64, ScoreFunction::kSigmoid}));
}

TEST(LayerOverrides, LetLaterTextsWin) {
  const Config config = config_with({"1-7: top_k=4", "3: top_k=3"});
  EXPECT_EQ(moe_of_layer(config, 2).top_k, 4);
  EXPECT_EQ(moe_of_layer(config, 3).top_k, 3);
}

TEST(LayerOverrides, NameWhatIsWrongWithAText) {
  const auto wrong = [](const std::string& text) {
    const Lines lines = wrong_overrides(config_with({text}));
    return lines.empty() ? "" : lines.front();
  };
  const std::string form =
      ": expected layers, a colon and settings, as in `4-7: num_experts=16 top_k=2`";
  EXPECT_EQ(wrong("4-7 top_k=2"), "moe.overrides holds \"4-7 top_k=2\"" + form);
  EXPECT_EQ(wrong("4-7:"), "moe.overrides holds \"4-7:\"" + form);
  EXPECT_EQ(wrong(": top_k=2"), "moe.overrides holds \": top_k=2\"" + form);
  EXPECT_EQ(wrong("4-8: top_k=2"),
            "moe.overrides holds \"4-8\": the layers of this model are 0 to 7 (model.num_layers is "
            "8)");
  EXPECT_EQ(wrong("4: topk=2"),
            "moe.overrides holds \"4: topk=2\": unknown key topk; did you mean top_k?");
  EXPECT_EQ(wrong("4: dispatcher=allgather"),
            "moe.overrides holds \"4: dispatcher=allgather\": moe.dispatcher cannot differ between "
            "layers");
  EXPECT_EQ(wrong("4: top_k=0"),
            "moe.overrides holds \"4: top_k=0\": moe.top_k is 0, allowed are 1 to 1024");
  EXPECT_EQ(wrong("4: top_k"), "moe.overrides holds \"4: top_k\": expected key=value, got top_k");
  EXPECT_EQ(
      wrong("4: num_experts=0"),
      "moe.overrides holds \"4: num_experts=0\": moe.num_experts is 0: leave the layer out of "
      "moe.layers instead");
  EXPECT_EQ(message_of<ConfigError>([] { moe_of_layer(config_with({"4-7:"}), 0); }),
            "moe.overrides holds \"4-7:\"" + form);
}

TEST(LayerOverrides, MustFulfilTheRulesOfTheSection) {
  EXPECT_EQ(broken_rules(config_with({"4-7: num_experts=16"}), ConfigUse::kDescribe), Lines{});
  EXPECT_EQ(broken_rules(config_with({"4-7: top_k=9"}), ConfigUse::kDescribe),
            Lines{"moe.overrides, layer 4: moe.top_k (9) must not exceed moe.num_experts (8)"});
  EXPECT_EQ(broken_rules(config_with({"4: banana=9"}), ConfigUse::kDescribe).size(), 1U);
  // Said once, where the whole section is wrong.
  Config config = config_with({"4: num_groups=1"});
  config.moe.top_k = 9;
  EXPECT_EQ(broken_rules(config, ConfigUse::kDescribe),
            Lines{"moe.top_k (9) must not exceed moe.num_experts (8)"});
}

TEST(LayerOverrides, AreReportedWithoutEffect) {
  EXPECT_EQ(warnings_about(config_with({"0: top_k=1", "4: group_top_k=2"}), Origins{}),
            (Lines{"moe.overrides: \"0: top_k=1\" has no effect: none of its layers has experts",
                   "moe.overrides: moe.group_top_k in \"4: group_top_k=2\" has no effect: "
                   "moe.num_groups is 1"}));
}

}  // namespace
}  // namespace switchyard
