#include "train/metrics.h"

#include <cmath>
#include <filesystem>
#include <fstream>
#include <limits>
#include <set>
#include <sstream>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

namespace switchyard {
namespace {

using Json = nlohmann::ordered_json;

StepMetrics example() {
  StepMetrics metrics;
  metrics.step = 3;
  metrics.loss = {7.0, 4.0};
  metrics.auxiliary = {{"balance", 0.0125}, {"z", 0.5}};
  metrics.lr = 0.001;
  metrics.grad_norm = 2.25;
  metrics.skipped_steps = 1;
  metrics.tokens = 1000;
  metrics.expert_load = {ExpertLoad::from_counts(2, {6, 0, 2, 0})};
  metrics.step_time_s = 0.5;
  metrics.flops_per_rank = 3e12;
  metrics.dispatch = {.waited_s = 0.125, .hidden_s = 0.375};
  metrics.combine = {.waited_s = 0.0625, .hidden_s = 0};
  metrics.expert_matmul = {.seconds = 0.25, .flops = 1e12, .peak_tflops = 8};
  return metrics;
}

TEST(ToJson, WritesEveryKeyInOrder) {
  EXPECT_EQ(to_json(example()),
            R"({"step":3,"loss":1.75,"loss_sum":7.0,"loss_weight":4.0,)"
            R"("aux":{"balance":0.0125,"z":0.5},"lr":0.001,"grad_norm":2.25,"skipped":false,)"
            R"("skipped_steps":1,"tokens":1000,)"
            R"("expert_load":[{"layer":2,"max_over_mean":3.0,"idle_share":0.5,"busiest":6,)"
            R"("idle":2,"experts":4,"copies":8}],)"
            R"("step_time_s":0.5,"tokens_per_s":2000.0,"tflops_per_rank":6.0,)"
            R"("flops_per_rank":3000000000000.0,"dispatch_share":0.25,"dispatch_time_s":0.125,)"
            R"("dispatch_hidden_s":0.375,"combine_share":0.125,"combine_time_s":0.0625,)"
            R"("combine_hidden_s":0.0,)"
            R"("expert_matmul_share":0.5,"expert_matmul_time_s":0.25,)"
            R"("expert_matmul_efficiency":0.5,"expert_matmul_tflops":4.0,"peak_tflops":8.0})");
}

TEST(ToJson, WritesWhatExistsOnlySometimes) {
  StepMetrics metrics = example();
  EXPECT_FALSE(Json::parse(to_json(metrics)).contains("dropped_share"));
  metrics.dropped = {2, 8};
  metrics.eval_loss = {3.0, 2.0};
  const Json line = Json::parse(to_json(metrics));
  EXPECT_EQ(line["dropped_share"], 0.25);
  EXPECT_EQ(line["dropped_copies"], 2);
  EXPECT_EQ(line["routed_copies"], 8);
  EXPECT_EQ(line["eval_loss"], 1.5);
  EXPECT_EQ(line["eval_loss_sum"], 3.0);
  EXPECT_EQ(line["eval_loss_weight"], 2.0);
}

TEST(ToJson, WritesNullOverZeroItems) {
  StepMetrics metrics;
  metrics.step = 1;
  metrics.expert_load = {ExpertLoad::from_counts(0, {0, 0})};
  metrics.dropped = {0, 0};
  const Json line = Json::parse(to_json(metrics));
  EXPECT_TRUE(line["loss"].is_null());
  EXPECT_EQ(line["loss_weight"], 0.0);
  EXPECT_TRUE(line["expert_load"][0]["max_over_mean"].is_null());
  EXPECT_TRUE(line["expert_load"][0]["idle_share"].is_null());
  EXPECT_TRUE(line["dropped_share"].is_null());
  EXPECT_TRUE(line["tokens_per_s"].is_null());
}

TEST(ToJson, WritesWhatIsNotFiniteAsWords) {
  StepMetrics metrics = example();
  metrics.loss.numerator = std::nan("");
  metrics.grad_norm = std::numeric_limits<double>::infinity();
  metrics.lr = -std::numeric_limits<double>::infinity();
  const Json line = Json::parse(to_json(metrics));
  EXPECT_EQ(line["loss"], "NaN");
  EXPECT_EQ(line["grad_norm"], "Infinity");
  EXPECT_EQ(line["lr"], "-Infinity");
}

TEST(ToJson, KeepsEveryBitOfADouble) {
  for (const double value : {0.1, 1.0 / 3, std::nextafter(2.0, 3.0), 5e-324, 1.7976931348623157e308,
                             -0.0, 123456789.123456789}) {
    StepMetrics metrics;
    metrics.grad_norm = value;
    const double read = Json::parse(to_json(metrics))["grad_norm"].get<double>();
    EXPECT_EQ(std::signbit(read), std::signbit(value));
    EXPECT_EQ(read, value);
  }
}

TEST(ToJson, PutsTheTimeKeysLast) {
  const Json line = Json::parse(to_json(example()));
  const std::string_view last_of_the_others = "expert_load";
  bool is_time = false;
  size_t times = 0;
  for (const auto& [key, value] : line.items()) {
    const bool listed = std::find(kTimeKeys.begin(), kTimeKeys.end(), key) != kTimeKeys.end();
    EXPECT_EQ(listed, is_time) << key;
    times += listed ? 1 : 0;
    is_time = is_time || key == last_of_the_others;
  }
  EXPECT_EQ(times, kTimeKeys.size());
}

TEST(ToScalars, NamesEveryValueThatExists) {
  StepMetrics metrics = example();
  metrics.expert_load.push_back(ExpertLoad::from_counts(5, {0, 0}));  // has no ratios
  const std::vector<std::pair<std::string, double>> expected = {
      {"loss", 1.75},
      {"aux/balance", 0.0125},
      {"aux/z", 0.5},
      {"lr", 0.001},
      {"grad_norm", 2.25},
      {"skipped_steps", 1},
      {"experts/max_over_mean/layer_2", 3.0},
      {"experts/idle_share/layer_2", 0.5},
      {"speed/step_time_s", 0.5},
      {"speed/tokens_per_s", 2000.0},
      {"speed/tflops_per_rank", 6.0},
      {"speed/dispatch_share", 0.25},
      {"speed/dispatch_hidden_share", 0.75},
      {"speed/combine_share", 0.125},
      {"speed/combine_hidden_share", 0},
      {"speed/expert_matmul_share", 0.5},
      {"speed/expert_matmul_efficiency", 0.5},
  };
  EXPECT_EQ(to_scalars(metrics), expected);
}

void add_names(const Json& value, const std::string& prefix, std::set<std::string>& names) {
  if (value.is_array()) {
    for (const Json& one : value) {
      add_names(one, prefix, names);
    }
  } else if (value.is_object()) {
    for (const auto& [key, inner] : value.items()) {
      names.insert(prefix + key);
      add_names(inner, prefix + key + ".", names);
    }
  }
}

TEST(ToJson, WritesExactlyTheFieldsOfItsPage) {
  StepMetrics metrics = example();
  metrics.dropped = {2, 8};
  metrics.eval_loss = {3.0, 2.0};
  metrics.auxiliary.insert(metrics.auxiliary.end(),
                           {{"step_balance", 1.0}, {"global_balance", 1.0}, {"mtp_1", 1.0}});
  std::set<std::string> written;
  add_names(Json::parse(to_json(metrics)), "", written);
  std::set<std::string> documented;
  std::ifstream page(SWITCHYARD_SOURCE_DIR "/docs/metrics.md");
  for (std::string line; std::getline(page, line);) {
    if (line.starts_with("| `")) {
      documented.insert(line.substr(3, line.find('`', 3) - 3));
    }
  }
  EXPECT_EQ(documented, written);
}

class MetricsFileTest : public testing::Test {
 protected:
  void SetUp() override { std::filesystem::remove(path_); }

  std::string content() const {
    std::ostringstream text;
    text << std::ifstream(path_, std::ios::binary).rdbuf();
    return text.str();
  }
  void set_content(const std::string& text) const {
    std::ofstream(path_, std::ios::binary) << text;
  }
  static std::string line(int64_t step) {
    StepMetrics metrics = example();
    metrics.step = step;
    return to_json(metrics) + "\n";
  }
  static std::string lines(int64_t first, int64_t last) {
    std::string text;
    for (int64_t step = first; step <= last; ++step) {
      text += line(step);
    }
    return text;
  }
  // Opens as a run that continues after `resume_step` steps, and closes.
  std::string opened(int64_t resume_step) const {
    { const MetricsFile file(path_, resume_step); }
    return content();
  }

  const std::string path_ = testing::TempDir() + "metrics_test.metrics.jsonl";
};

TEST_F(MetricsFileTest, OfAResumedRunEqualsThatOfAnUninterruptedOne) {
  {
    MetricsFile file(path_, 0);
    for (int64_t step = 1; step <= 10; ++step) {
      StepMetrics metrics = example();
      metrics.step = step;
      file.write(metrics);
    }
    EXPECT_EQ(content(), lines(1, 10));
  }
  MetricsFile file(path_, 8);
  EXPECT_EQ(content(), lines(1, 8));
  StepMetrics metrics = example();
  metrics.step = 9;
  file.write(metrics);
  file.sync();
  EXPECT_EQ(content(), lines(1, 9));
}

TEST_F(MetricsFileTest, CutsOffATornLineWhereverItIsTorn) {
  const std::string torn = line(4);
  for (size_t length = 1; length < torn.size(); ++length) {
    set_content(lines(1, 3) + torn.substr(0, length));
    ASSERT_EQ(opened(4), lines(1, 3)) << length;
  }
  set_content(lines(1, 3) + torn);
  EXPECT_EQ(opened(4), lines(1, 4));
}

// What a file system may leave after the power failed.
TEST_F(MetricsFileTest, CutsOffZerosAndOtherLinesThatAreNoRecords) {
  for (const std::string& rubbish :
       {std::string(4096, '\0'), std::string("\n"), std::string("\n\n\n"), std::string("[1]\n"),
        std::string("{\"loss\":1}\n"), std::string("{\"step\":\"2\"}\n"), std::string("7\n")}) {
    set_content(lines(1, 3) + rubbish);
    EXPECT_EQ(opened(9), lines(1, 3)) << rubbish;
  }
}

TEST_F(MetricsFileTest, StartsEmptyWhenTheRunDoes) {
  set_content(lines(1, 3));
  EXPECT_EQ(opened(0), "");
  EXPECT_EQ(opened(0), "");
  std::filesystem::remove(path_);
  EXPECT_EQ(opened(5), "");
}

// Longer than the block in which the search for line ends reads.
TEST_F(MetricsFileTest, CutsLinesLongerThanAReadingBlock) {
  StepMetrics metrics = example();
  for (int64_t layer = 0; layer < 3000; ++layer) {
    metrics.expert_load.push_back(ExpertLoad::from_counts(layer, {1, 2}));
  }
  std::string text[3];
  for (int64_t step = 1; step <= 3; ++step) {
    metrics.step = step;
    text[step - 1] = to_json(metrics) + "\n";
  }
  ASSERT_GT(text[0].size(), 200'000);
  set_content(text[0] + text[1] + text[2]);
  EXPECT_EQ(opened(2), text[0] + text[1]);
  EXPECT_EQ(opened(1), text[0]);
}

}  // namespace
}  // namespace switchyard
