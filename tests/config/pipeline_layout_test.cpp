#include "config/pipeline_layout.h"

#include <gtest/gtest.h>

#include "base/error.h"

namespace switchyard {
namespace {

Config pipeline(int64_t layers, int64_t ranks, int64_t per_rank, const std::string& layout = "") {
  Config config;
  config.model.num_layers = layers;
  config.parallel.pipeline_size = ranks;
  config.parallel.virtual_pipeline_size = per_rank;
  config.parallel.pipeline_layout = layout;
  return config;
}

using Stages = std::vector<StageLayers>;

TEST(PipelineLayout, DividesLayersEvenlyWithOneMoreInTheFirstStages) {
  EXPECT_EQ(pipeline_layout(pipeline(3, 1, 1)), (Stages{{0, 3, true, true}}));
  EXPECT_EQ(pipeline_layout(pipeline(4, 2, 1)), (Stages{{0, 2, true, false}, {2, 4, false, true}}));
  EXPECT_EQ(pipeline_layout(pipeline(7, 2, 2)),
            (Stages{{0, 2, true, false}, {2, 4}, {4, 6}, {6, 7, false, true}}));
}

TEST(PipelineLayout, ReadsMegatronsNotation) {
  EXPECT_EQ(pipeline_layout(pipeline(3, 2, 1, "Ett|tL")),
            (Stages{{0, 2, true, false}, {2, 3, false, true}}));
  EXPECT_EQ(pipeline_layout(pipeline(2, 4, 1, "E|t|t|L")),
            (Stages{{0, 0, true, false}, {0, 1}, {1, 2}, {2, 2, false, true}}));
  // DeepSeek-V3 on 16 ranks.
  Config with_prediction = pipeline(61, 16, 1, "Et*4|(t*4|)*14,tmL");
  with_prediction.mtp.num_layers = 1;
  const Stages deepseek = pipeline_layout(with_prediction);
  EXPECT_EQ(deepseek[1], (StageLayers{4, 8}));
  EXPECT_EQ(deepseek[15], (StageLayers{60, 61, false, true}));
  EXPECT_EQ(pipeline_layout(pipeline(9, 2, 2, "Et|((t)*2 t|)*2 tt L")),
            (Stages{{0, 1, true, false}, {1, 4}, {4, 7}, {7, 9, false, true}}));
}

TEST(PipelineLayout, SaysWhatIsWrong) {
  EXPECT_EQ(wrong_pipeline_layout(pipeline(3, 2, 2)),
            "model.num_layers (3) must be at least parallel.pipeline_size x "
            "parallel.virtual_pipeline_size (2 x 2 = 4 stages); a stage without layers needs "
            "parallel.pipeline_layout");
  EXPECT_EQ(wrong_pipeline_layout(pipeline(8, 1, 2)),
            "parallel.virtual_pipeline_size (2) must be 1 where parallel.pipeline_size is 1: one "
            "rank has all layers");
  const auto wrong = [](const std::string& layout) {
    return wrong_pipeline_layout(pipeline(4, 2, 1, layout));
  };
  EXPECT_EQ(wrong("Et*2|t*2L"), "");
  EXPECT_EQ(wrong("Ettt|L"),
            "parallel.pipeline_layout (\"Ettt|L\") has 3 layers (t), "
            "model.num_layers is 4");
  EXPECT_EQ(wrong("Ett|t|tL"),
            "parallel.pipeline_layout (\"Ett|t|tL\") has 3 stages, parallel.pipeline_size x "
            "parallel.virtual_pipeline_size (2 x 1) are 2");
  EXPECT_EQ(wrong("Etttt|"), "parallel.pipeline_layout (\"Etttt|\") leaves stage 1 empty");
  EXPECT_EQ(wrong("Ettt|tmL"),
            "parallel.pipeline_layout (\"Ettt|tmL\") has 1 modules of multi-token prediction (m), "
            "mtp.num_layers is 0");
  EXPECT_EQ(wrong("Ettm|ttL"),
            "parallel.pipeline_layout (\"Ettm|ttL\") must have every m right before L: modules of "
            "multi-token prediction are where the head is");
  EXPECT_EQ(wrong("Ettx|tL"),
            "parallel.pipeline_layout (\"Ettx|tL\") has a \"x\": stages are made of E, t, m and L");
  const std::string ends = " must have one E, at its very beginning, and one L, at its very end";
  for (const std::string layout :
       {"tEt|ttL", "tt|ttL", "Ett|tt", "EttL|tt", "EEtt|ttL", "L|tttE"}) {
    EXPECT_EQ(wrong(layout), "parallel.pipeline_layout (\"" + layout + "\")" + ends);
  }
  EXPECT_EQ(wrong("E(tt|ttL"), "parallel.pipeline_layout (\"E(tt|ttL\"): a \"(\" is not closed");
  EXPECT_EQ(wrong("Ett)|ttL"), "parallel.pipeline_layout (\"Ett)|ttL\"): a \")\" closes nothing");
  EXPECT_EQ(wrong("Et*|ttL"),
            "parallel.pipeline_layout (\"Et*|ttL\"): after \"*\" a number of at "
            "most 6 digits is expected");
  EXPECT_EQ(wrong("E(t*99999)*99999|L"),
            "parallel.pipeline_layout (\"E(t*99999)*99999|L\"): it is too long when written out");
  EXPECT_THROW(pipeline_layout(pipeline(4, 2, 1, "t|t")), ConfigError);
}

}  // namespace
}  // namespace switchyard
