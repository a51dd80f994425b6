#include "hub/hf_config.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "checkpoint/checkpoint_tests.h"

namespace switchyard {
namespace {

using Json = nlohmann::json;

TEST(HfConfig, ReadsOldNamesAndRefusesTwoThatDiffer) {
  HfConfig fields(Json{{"num_local_experts", 8}}, "config.json");
  EXPECT_EQ(*fields.find("num_experts", {"num_local_experts"}), 8);
  HfConfig both(Json{{"num_experts", 4}, {"num_local_experts", 8}}, "config.json");
  EXPECT_EQ(
      message_of<ConfigError>([&] { both.find("num_experts", {"num_local_experts"}); }),
      "config.json: num_experts is 4 and num_local_experts is 8: they mean the same, keep one "
      "of them");
}

TEST(HfConfig, ListsWhatNobodyAskedForButHarmlessFields) {
  HfConfig fields(Json{{"hidden_size", 8}, {"use_cache", true}, {"clip", 1}, {"attn", 2}}, "c");
  fields.find("hidden_size");
  EXPECT_EQ(fields.unread(), (std::vector<std::string>{"attn", "clip"}));
}

TEST(HfConfig, RefusesAnotherTypeAndGivesTheStandardForNull) {
  HfConfig fields(Json{{"top_k", "two"}, {"window", nullptr}}, "config.json");
  EXPECT_EQ(fields.get("window", int64_t{7}), 7);
  EXPECT_EQ(fields.get("absent", true), true);
  EXPECT_EQ(message_of<ConfigError>([&] { fields.get("top_k", int64_t{2}); }),
            "config.json: top_k is \"two\", which is of the wrong type: expected something like 2");
}

TEST(HfConfig, RefusesAFileThatIsNoObject) {
  const TemporaryFolder folder;
  write_bytes(folder / "config.json", "{\"hidden_size\": 8");
  EXPECT_EQ(message_of<FileError>([&] { HfConfig::from_file(folder / "config.json"); }),
            (folder / "config.json").string() + ": is not a JSON object; is it cut short?");
}

TEST(RawFromJson, WritesValuesAsSettingsHaveThem) {
  EXPECT_EQ(raw_from_json(1e-6, "x").items, std::vector<std::string>{"1e-06"});
  EXPECT_EQ(raw_from_json(true, "x").items, std::vector<std::string>{"true"});
  const RawValue list = raw_from_json(Json::array({0, "b"}), "x");
  EXPECT_TRUE(list.is_list);
  EXPECT_EQ(list.items, (std::vector<std::string>{"0", "b"}));
  EXPECT_EQ(message_of<ConfigError>([] { raw_from_json(Json::object(), "c: rope"); }),
            "c: rope is {}: expected a number, a word or true or false");
}

}  // namespace
}  // namespace switchyard
