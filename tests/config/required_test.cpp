#include "config/required.h"

#include <gtest/gtest.h>

namespace switchyard {
namespace {

std::vector<std::string> names(const std::vector<const Setting*>& list) {
  std::vector<std::string> result;
  for (const Setting* setting : list) {
    result.push_back(setting->name);
  }
  return result;
}

TEST(MissingSettings, DependOnThePurpose) {
  const std::vector<std::string> shape = {"model.num_layers", "model.hidden_size",
                                          "model.num_attention_heads"};
  EXPECT_EQ(names(missing_settings(Origins{}, ConfigUse::kDescribe)), shape);
  EXPECT_EQ(names(missing_settings(Origins{}, ConfigUse::kTrain)),
            (std::vector<std::string>{
                "run.dir", "model.num_layers", "model.hidden_size", "model.num_attention_heads",
                "data.train", "data.sequence_length", "train.global_batch_size", "optimizer.lr"}));
}

TEST(MissingSettings, AreNotThoseThatWereGiven) {
  Origins origins;
  origins.set("model.num_layers", "run.yaml:1");
  origins.set("model.hidden_size", "command line");
  EXPECT_EQ(names(missing_settings(origins, ConfigUse::kDescribe)),
            std::vector<std::string>{"model.num_attention_heads"});
}

TEST(MissingText, SaysWhatTheSettingIs) {
  EXPECT_EQ(missing_text(*find_setting("model.num_layers")),
            "model.num_layers must be given: decoder layers");
}

}  // namespace
}  // namespace switchyard
