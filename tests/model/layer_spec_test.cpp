#include "model/layer_spec.h"

#include <gtest/gtest.h>

namespace switchyard {
namespace {

std::vector<int64_t> windows(const Config& config) {
  std::vector<int64_t> windows;
  for (const LayerSpec& layer : describe_layers(config)) {
    windows.push_back(layer.attention_window);
  }
  return windows;
}

TEST(DescribeLayers, GivesTheWindowToAllLayersOrToThoseNamed) {
  Config config;
  config.model.num_layers = 4;
  EXPECT_EQ(windows(config), (std::vector<int64_t>{0, 0, 0, 0}));
  config.attention.window = 5;
  EXPECT_EQ(windows(config), (std::vector<int64_t>{5, 5, 5, 5}));
  config.attention.window_layers = {"1-3/2"};
  EXPECT_EQ(windows(config), (std::vector<int64_t>{0, 5, 0, 5}));
}

}  // namespace
}  // namespace switchyard
