#include "config/layer_set.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "config/example.h"

namespace switchyard {
namespace {

// The layers of a model of twelve that are in the set.
std::vector<int> layers_of(const std::vector<std::string>& texts) {
  std::vector<int> layers;
  const std::vector<bool> is_in_set = layer_set("moe.layers", texts, 12);
  for (size_t i = 0; i < is_in_set.size(); ++i) {
    if (is_in_set[i]) {
      layers.push_back(static_cast<int>(i));
    }
  }
  return layers;
}

using Layers = std::vector<int>;

TEST(LayerSet, NamesSingleLayersRangesAndSteps) {
  EXPECT_EQ(layers_of({}), Layers{});
  EXPECT_EQ(layers_of({"3"}), Layers{3});
  EXPECT_EQ(layers_of({"0-4"}), (Layers{0, 1, 2, 3, 4}));
  EXPECT_EQ(layers_of({"5-5"}), Layers{5});
  EXPECT_EQ(layers_of({"1-11/2"}), (Layers{1, 3, 5, 7, 9, 11}));
  EXPECT_EQ(layers_of({"0-10/4"}), (Layers{0, 4, 8}));
  EXPECT_EQ(layers_of({"2-11/9223372036854775807"}), Layers{2});
  EXPECT_EQ(layers_of({"3", "0-2", "2-8/3", "11"}), (Layers{0, 1, 2, 3, 5, 8, 11}));
}

TEST(LayerSet, HoldsOneEntryForEachLayerOfTheModel) {
  EXPECT_EQ(layer_set("moe.layers", {"1"}, 3), (std::vector<bool>{false, true, false}));
}

TEST(LayerSet, RefusesWhatNamesNoLayers) {
  for (const char* text :
       {"", "x", "-1", "3-", "-", "1--3", "7-3", "0-7/0", "0-7/-1", "0-7/", "3/2", "0-7/2x", " 3",
        "3 ", "+3", "1.5", "0-7-9", "99999999999999999999"}) {
    EXPECT_EQ(wrong_layer_set("attention.window_layers", {"1", text}, 12),
              fmt::format("attention.window_layers holds \"{}\", which names no layers: expected a "
                          "layer (3), a range (0-7), or a range with a step (1-23/2)",
                          text));
  }
}

TEST(LayerSet, RefusesLayersThatTheModelHasNot) {
  EXPECT_EQ(wrong_layer_set("moe.layers", {"0-11"}, 12), "");
  EXPECT_EQ(wrong_layer_set("moe.layers", {"0-12"}, 12),
            "moe.layers holds \"0-12\": the layers of this model are 0 to 11 (model.num_layers is "
            "12)");
  EXPECT_EQ(message_of<ConfigError>([] { layer_set("moe.layers", {"12"}, 12); }),
            "moe.layers holds \"12\": the layers of this model are 0 to 11 (model.num_layers is "
            "12)");
}

}  // namespace
}  // namespace switchyard
