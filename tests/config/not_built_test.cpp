#include "config/not_built.h"

#include <gtest/gtest.h>

#include "config/example.h"

namespace switchyard {
namespace {

TEST(NotBuilt, LetsDefaultsPass) {
  EXPECT_TRUE(settings_not_built(Config{}).empty());
}

TEST(NotBuilt, NamesEachSettingAndItsDefault) {
  Config config;
  config.mtp.repeated_layer = true;
  config.parallel.data_sharding = DataSharding::kOptimizer;
  EXPECT_EQ(settings_not_built(config),
            std::vector<std::string>{"mtp.repeated_layer (true) is not built yet: leave it false"});
}

}  // namespace
}  // namespace switchyard
