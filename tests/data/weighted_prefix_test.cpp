#include "data/weighted_prefix.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "data/dataset_files.h"

namespace switchyard {
namespace {

std::string error_of_parsing(const std::vector<std::string>& entries) {
  return error_of<ConfigError>([&] { parse_weighted_prefixes("data.train", entries); });
}

TEST(WeightedPrefix, HasAWeightWhenANumberAndAColonComeFirst) {
  const auto parsed = parse_weighted_prefixes("data.train", {"0.7:data/books", "3e-1:b:c"});
  ASSERT_EQ(parsed.size(), 2U);
  EXPECT_EQ(parsed[0].prefix, "data/books");
  EXPECT_EQ(parsed[0].weight, 0.7);
  EXPECT_EQ(parsed[1].prefix, "b:c");
  EXPECT_EQ(parsed[1].weight, 0.3);
}

TEST(WeightedPrefix, HasNoneOtherwise) {
  for (const std::string entry : {"data/books", "run7:books", "0.7", ":books", "0.7 :books"}) {
    const auto parsed = parse_weighted_prefixes("data.train", {entry});
    EXPECT_EQ(parsed.at(0).prefix, entry);
    EXPECT_FALSE(parsed.at(0).weight.has_value());
  }
}

TEST(WeightedPrefix, SaysWhatIsWrong) {
  EXPECT_EQ(error_of_parsing({}),
            "data.train is empty, expected the prefix of a tokenized data set");
  EXPECT_EQ(error_of_parsing({""}),
            "data.train has the entry \"\", expected PREFIX or WEIGHT:PREFIX");
  EXPECT_EQ(error_of_parsing({"0.5:"}),
            "data.train has the entry \"0.5:\", expected PREFIX or WEIGHT:PREFIX");
  for (const auto& [text, shown] :
       {std::pair("0", "0"), {"-1", "-1"}, {"nan", "nan"}, {"inf", "inf"}}) {
    EXPECT_EQ(error_of_parsing({std::string(text) + ":a"}),
              std::string("data.train: the weight of a is ") + shown +
                  ", expected a number above 0; leave the entry out to not use it");
  }
  EXPECT_EQ(error_of_parsing({"0.5:a", "0.5:a"}),
            "data.train names a twice; give it once, with the weight that both have together");
  EXPECT_EQ(error_of_parsing({"a", "0.5:b"}),
            "data.train: b has a weight and a has none; give every entry one, as in 0.3:a, or none "
            "to draw in proportion to size");
}

}  // namespace
}  // namespace switchyard
