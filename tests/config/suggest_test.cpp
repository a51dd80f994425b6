#include "config/suggest.h"

#include <gtest/gtest.h>

#include "config/settings.h"

namespace switchyard {
namespace {

TEST(EditDistance, CountsEachKindOfMistakeOnce) {
  EXPECT_EQ(edit_distance("top_k", "top_k"), 0U);
  EXPECT_EQ(edit_distance("topk", "top_k"), 1U);    // left out
  EXPECT_EQ(edit_distance("top__k", "top_k"), 1U);  // too many
  EXPECT_EQ(edit_distance("top-k", "top_k"), 1U);   // replaced
  EXPECT_EQ(edit_distance("tpo_k", "top_k"), 1U);   // swapped
  EXPECT_EQ(edit_distance("", "abc"), 3U);
  EXPECT_EQ(edit_distance("kitten", "sitting"), 3U);  // Levenshtein's textbook example
}

TEST(NearestName, PrefersTheFewestEdits) {
  EXPECT_EQ(nearest_name("sigmiod", {"softmax", "sigmoid"}), "sigmoid");
  EXPECT_EQ(nearest_name("beta3", {"beta1x", "beta1", "beta2"}), "beta1");
}

TEST(NearestName, IgnoresCaseAndDashes) {
  EXPECT_EQ(nearest_name("Num-Layers", {"num_heads", "num_layers"}), "num_layers");
}

TEST(NearestName, TakesABeginningForTheWhole) {
  EXPECT_EQ(nearest_name("checkpointing", {"run", "checkpoint"}), "checkpoint");
  EXPECT_EQ(nearest_name("temp", {"top-k", "temperature"}), "temperature");
}

TEST(NearestName, FindsNothingNearForAnotherWord) {
  EXPECT_EQ(nearest_name("banana", {"top_k", "num_layers"}), "");
  EXPECT_EQ(nearest_name("", {"top_k"}), "");
  EXPECT_EQ(nearest_name("lr", {"run", "dir"}), "");
  EXPECT_EQ(nearest_name(std::string(1000000, 'a'), {"top_k"}), "");
}

TEST(ForeignKeys, NameSettingsThatExist) {
  for (const std::string& name : foreign_key_targets()) {
    EXPECT_NE(find_setting(name), nullptr) << name;
  }
}

TEST(ForeignKeys, KnowMegatronAndHuggingFace) {
  EXPECT_EQ(name_of_foreign_key("moe_router_topk"), "moe.top_k");
  EXPECT_EQ(name_of_foreign_key("num-experts-per-tok"), "moe.top_k");
  EXPECT_EQ(name_of_foreign_key("num_key_value_heads"), "model.num_query_groups");
  EXPECT_EQ(name_of_foreign_key("expert_model_parallel_size"), "parallel.expert_size");
  EXPECT_EQ(name_of_foreign_key("top_k"), "");
}

}  // namespace
}  // namespace switchyard
