#include <set>

#include <gtest/gtest.h>

#include "support/model_variants.h"

namespace switchyard {
namespace {

constexpr double kTolerance = 1e-9;

// Mutation: with any one collective or scale taken out, the comparison above must fail. A removal
// that ends in an error counts as noticed.
bool notices_removal(const Config& config, const Layout& layout, const LogicalTensors& expected,
                     const std::string& site) {
  LogicalTensors actual;
  try {
    run_model(config, layout, actual, site, std::chrono::seconds(5));
  } catch (const std::exception&) {
    return true;
  }
  return !differences(expected, actual, kTolerance).empty();
}

TEST(LayoutMutation, EveryCollectiveAndScaleIsNoticedWhenMissing) {
  std::set<std::string> tried;
  for (const char* chosen :
       {"foretelling", "alltoall", "allgather", "sigmoid_bias_tied", "full_norm_dynamic",
        "biased_groups", "set_losses", "capacity", "sinkhorn", "varied", "flex", "hybrid"}) {
    const Variant& variant = variant_named(chosen);
    LogicalTensors expected;
    run_model(variant.config, {.name = "one"}, expected);
    for (const char* name :
         {"tp2_sp", "ep2_etp2", "tp2_ep2_dp2", "tp2_sp_ep2_dp2", "pp2_vpp2", "cp2_gather_etp2_dp2",
          "tp2_sp_cp2_ep2", "cp4_heads", "cp3", "tp2_sp_ep4_nodes_of_2"}) {
      const Layout& layout = layout_named(name);
      LogicalTensors whole;
      const LayoutRunSites recorded = run_model(variant.config, layout, whole);
      ASSERT_TRUE(differences(expected, whole, kTolerance).empty());
      std::vector<std::string> sites = recorded.collectives;
      sites.insert(sites.end(), recorded.scales.begin(), recorded.scales.end());
      for (const std::string& site : sites) {
        const auto sharding = static_cast<int>(variant.config.parallel.data_sharding);
        if (tried.insert(fmt::format("{} {} {}", site, layout.sequence_parallel, sharding))
                .second) {
          EXPECT_TRUE(notices_removal(variant.config, layout, expected, site))
              << site << " can be removed unnoticed (" << layout.name << ", " << variant.name
              << ")";
        }
      }
    }
  }
  EXPECT_GT(tried.size(), 30U);
}

}  // namespace
}  // namespace switchyard
