#include "config/moe_layers.h"

#include <gtest/gtest.h>

#include "config/example.h"

namespace switchyard {
namespace {

using Layers = std::vector<bool>;

Layers layers_with(int64_t num_experts, int64_t first_dense_layers,
                   const std::vector<std::string>& layers) {
  Config config;
  config.model.num_layers = 6;
  config.moe.num_experts = num_experts;
  config.moe.first_dense_layers = first_dense_layers;
  config.moe.layers = layers;
  return moe_layers(config);
}

TEST(MoeLayers, AreAllFromTheFirstOn) {
  EXPECT_EQ(layers_with(8, 0, {}), Layers(6, true));
  EXPECT_EQ(layers_with(8, 2, {}), (Layers{false, false, true, true, true, true}));
  EXPECT_EQ(layers_with(8, 9, {}), Layers(6, false));
}

TEST(MoeLayers, AreThoseOfASetFromTheFirstOn) {
  EXPECT_EQ(layers_with(8, 0, {"1-5/2"}), (Layers{false, true, false, true, false, true}));
  EXPECT_EQ(layers_with(8, 2, {"1-5/2", "4"}), (Layers{false, false, false, true, true, true}));
}

TEST(MoeLayers, AreNoneWithoutExperts) {
  EXPECT_EQ(layers_with(0, 0, {"1"}), Layers(6, false));
}

TEST(MoeLayers, NameAMalformedSet) {
  EXPECT_EQ(message_of<ConfigError>([] { layers_with(8, 0, {"7"}); }),
            "moe.layers holds \"7\": the layers of this model are 0 to 5 (model.num_layers is 6)");
}

}  // namespace
}  // namespace switchyard
