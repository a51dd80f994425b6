// The whole model in many layouts against one rank, in fp64: the definition of correct.
#include <gtest/gtest.h>

#include "support/model_variants.h"

namespace switchyard {
namespace {

constexpr double kTolerance = 1e-9;

// Ring attention, pipeline transfers and dispatch with all calls compared: none differs.
TEST(VerifiedCalls, PassInEveryKindOfLayout) {
  for (const char* name : {"tp2_sp_cp2_ep2", "pp2_vpp2", "pp2_cp2_ep2", "tp2_sp_ep4_nodes_of_2"}) {
    Config config = variant_named("flex").config;
    config.parallel.verify_calls = true;
    LogicalTensors expected;
    LogicalTensors actual;
    run_model(config, {.name = "one"}, expected);
    run_model(config, layout_named(name), actual);
    EXPECT_TRUE(differences(expected, actual, kTolerance).empty()) << name;
  }
}

using Case = std::tuple<size_t, size_t>;
class ModelLayout : public testing::TestWithParam<Case> {};

TEST_P(ModelLayout, EqualsOneRank) {
  const Variant& variant = model_variants()[std::get<0>(GetParam())];
  const Layout& layout = model_layouts()[std::get<1>(GetParam())];
  LogicalTensors expected;
  LogicalTensors actual;
  run_model(variant.config, {.name = "one"}, expected);
  run_model(variant.config, layout, actual);
  for (const std::string& line : differences(expected, actual, kTolerance)) {
    ADD_FAILURE() << layout.name << ", " << variant.name << ": " << line;
  }
  EXPECT_GT(expected.values().size(), 40U);
}

INSTANTIATE_TEST_SUITE_P(All, ModelLayout,
                         testing::Combine(testing::Range(size_t{0}, model_variants().size()),
                                          testing::Range(size_t{0}, model_layouts().size())),
                         [](const testing::TestParamInfo<Case>& one) {
                           return fmt::format("{}_{}",
                                              model_variants()[std::get<0>(one.param)].name,
                                              model_layouts()[std::get<1>(one.param)].name);
                         });

}  // namespace
}  // namespace switchyard
