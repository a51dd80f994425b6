// Every file of recipes/ that describes a published model: its size, its layout, what it says of
// itself.

#include <filesystem>
#include <fstream>
#include <map>
#include <regex>
#include <set>
#include <sstream>

#include <gtest/gtest.h>

#include "base/with_commas.h"
#include "config/load.h"
#include "model/parameter_count.h"

namespace switchyard {
namespace {

namespace fs = std::filesystem;

const fs::path kRecipes = fs::path(SWITCHYARD_SOURCE_DIR) / "recipes";

// Parameters, as transformers counts them; active ones in billions, as published.
struct Published {
  int64_t total;
  double active;
};
const std::map<std::string, Published> kPublished = {
    {"deepseek_v2", {235'741'434'880, 21.4}},
    {"deepseek_v2_lite", {15'706'484'224, 2.66}},
    {"deepseek_v3", {671'026'404'352, 37.6}},
    {"ernie4.5_21b_a3b", {21'825'436'160, 3.35}},
    {"ernie4.5_300b_a47b", {298'636'910'592, 47.1}},
    {"falcon_h1_0.5b", {521'411'104, 0.521}},
    {"gemma2_27b", {27'227'128'320, 27.2}},
    {"gemma2_2b", {2'614'341'888, 2.61}},
    {"gemma2_9b", {9'241'705'984, 9.24}},
    {"gemma3_12b", {11'766'034'176, 11.8}},
    {"gemma3_1b", {999'885'952, 1.0}},
    {"gemma_2b", {2'506'172'416, 2.51}},
    {"gemma_7b", {8'537'680'896, 8.54}},
    {"glm4.5", {352'797'814'784, 33.6}},
    {"glm4.5_air", {106'852'245'504, 13.4}},
    {"gpt_oss_120b", {116'829'156'672, 5.71}},
    {"gpt_oss_20b", {20'914'757'184, 4.19}},
    {"kimi_k2", {1'026'408'209'408, 32.9}},
    {"ling_flash_2.0", {102'889'697'280, 6.15}},
    {"ling_mini_2.0", {16'255'638'528, 1.43}},
    {"llama2_13b", {13'015'864'320, 13.0}},
    {"llama2_70b", {68'976'648'192, 69.0}},
    {"llama2_7b", {6'738'415'616, 6.74}},
    {"llama3.1_405b", {405'853'388'800, 406}},
    {"llama3.1_70b", {70'553'706'496, 70.6}},
    {"llama3.1_8b", {8'030'261'248, 8.03}},
    {"llama3.2_1b", {1'235'814'400, 1.24}},
    {"llama3.2_3b", {3'212'749'824, 3.21}},
    {"llama3_8b", {8'030'261'248, 8.03}},
    {"mamba2_2.7b", {2'702'599'680, 2.70}},
    {"mamba_2.8b", {2'768'345'600, 2.77}},
    {"minimax_m2", {228'689'748'992, 11.0}},
    {"mistral_7b", {7'241'732'096, 7.24}},
    {"mixtral_8x22b", {140'630'071'296, 39.2}},
    {"mixtral_8x7b", {46'702'792'704, 12.9}},
    {"moonlight_16b_a3b", {15'960'108'544, 2.91}},
    {"nemotron3_nano", {31'577'937'344, 3.58}},
    {"nemotron3_super", {120'668'687'360, 12.8}},
    {"nemotron3_ultra", {549'308'968'960, 56.1}},
    {"nemotron_h_47b", {46'791'554'816, 46.8}},
    {"nemotron_h_4b", {4'489'223'040, 4.49}},
    {"nemotron_h_56b", {56'324'350'464, 56.3}},
    {"nemotron_h_8b", {8'100'852'736, 8.10}},
    {"nemotron_mini_4b", {4'190'509'056, 4.19}},
    {"nemotron_nano_12b_v2", {12'310'001'152, 12.3}},
    {"nemotron_nano_9b_v2", {8'888'227'328, 8.89}},
    {"olmoe_1b_7b", {6'919'161'856, 1.28}},
    {"qwen1.5_moe_a2.7b", {14'315'784'192, 2.69}},
    {"qwen2.5_0.5b", {494'032'768, 0.494}},
    {"qwen2.5_1.5b", {1'543'714'304, 1.54}},
    {"qwen2.5_14b", {14'770'033'664, 14.8}},
    {"qwen2.5_32b", {32'763'876'352, 32.8}},
    {"qwen2.5_3b", {3'085'938'688, 3.09}},
    {"qwen2.5_72b", {72'706'203'648, 72.7}},
    {"qwen2.5_7b", {7'615'616'512, 7.62}},
    {"qwen2_57b_a14b", {57'408'658'944, 14.3}},
    {"qwen3_0.6b", {596'049'920, 0.596}},
    {"qwen3_1.7b", {1'720'574'976, 1.72}},
    {"qwen3_14b", {14'768'307'200, 14.8}},
    {"qwen3_235b_a22b", {235'093'634'560, 22.2}},
    {"qwen3_30b_a3b", {30'532'122'624, 3.35}},
    {"qwen3_32b", {32'762'123'264, 32.8}},
    {"qwen3_4b", {4'022'468'096, 4.02}},
    {"qwen3_8b", {8'190'735'360, 8.19}},
    {"qwen3_next_80b_a3b", {79'674'391'296, 3.87}},
};

std::string text_of(const fs::path& path) {
  std::ifstream file(path);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

// The ranks that a recipe says it is for.
int64_t ranks_of(const std::string& text) {
  std::smatch found;
  return std::regex_search(text, found, std::regex("for ([0-9]+) GPUs")) ? std::stoll(found[1]) : 1;
}

TEST(Recipes, AreAllPublishedModels) {
  std::set<std::string> names;
  for (const auto& entry : fs::directory_iterator(kRecipes)) {
    if (entry.is_regular_file() && entry.path().filename() != "quickstart.yaml") {
      names.insert(entry.path().stem().string());
    }
  }
  std::set<std::string> published;
  for (const auto& [name, sizes] : kPublished) {
    published.insert(name);
  }
  EXPECT_EQ(names, published);
}

TEST(Recipes, HaveThePublishedNumberOfParameters) {
  for (const auto& [name, sizes] : kPublished) {
    SCOPED_TRACE(name);
    const fs::path path = kRecipes / (name + ".yaml");
    const ParameterCount count =
        count_parameters(load_config(path, {}, ConfigUse::kDescribe).config);
    EXPECT_EQ(count.total, sizes.total);
    EXPECT_NEAR(static_cast<double>(count.active) / 1e9 / sizes.active, 1, 0.006);
    EXPECT_NE(text_of(path).find(with_commas(count.total) + " parameters"), std::string::npos);
  }
}

TEST(Recipes, TrainOnTheRanksTheyName) {
  for (const auto& [name, sizes] : kPublished) {
    SCOPED_TRACE(name);
    const fs::path path = kRecipes / (name + ".yaml");
    const LoadedConfig loaded =
        load_config(path, {"data.train=[text]", "data.eval=[text]"}, ConfigUse::kTrain);
    EXPECT_EQ(loaded.warnings, std::vector<std::string>{});
    const int64_t ranks = ranks_of(text_of(path));
    EXPECT_EQ(broken_rules_of_world(loaded.config, ranks), std::vector<std::string>{});
    EXPECT_EQ(broken_rules_of_world(loaded.config, 2 * ranks), std::vector<std::string>{});
  }
}

}  // namespace
}  // namespace switchyard
