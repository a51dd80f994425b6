#include "config/load.h"

#include <gtest/gtest.h>

#include "config/example.h"

namespace switchyard {
namespace {

using Lines = std::vector<std::string>;

class LoadTest : public FolderTest {};

TEST_F(LoadTest, ReadsAFileWithOverrides) {
  write("run.yaml", kExample);
  const LoadedConfig loaded = load_config("run.yaml", {"moe.top_k=4"}, ConfigUse::kTrain);
  EXPECT_EQ(loaded.config.moe.num_experts, 8);
  EXPECT_EQ(loaded.config.moe.top_k, 4);
  EXPECT_EQ(loaded.origins.of("moe.num_experts"), "run.yaml:8");
  EXPECT_EQ(loaded.origins.of("moe.top_k"), "command line");
  EXPECT_EQ(loaded.warnings, Lines{});
}

TEST_F(LoadTest, ThrowsAllMistakesAtOnce) {
  write("run.yaml", "run:\n  sed: 1\nmodel:\n  num_layers: 2\n  hidden_size: 0\n");
  EXPECT_EQ(message_of<ConfigError>(
                [] { load_config("run.yaml", {"moe.topk=2"}, ConfigUse::kDescribe); }),
            "run.yaml:2: unknown key run.sed; did you mean run.seed?\n"
            "run.yaml:5: model.hidden_size is 0, allowed are 1 to 1048576\n"
            "command line: unknown key moe.topk; did you mean moe.top_k?\n"
            "model.num_attention_heads must be given: query heads of an attention layer; 0 when no "
            "layer has attention");
}

TEST_F(LoadTest, ThrowsAllBrokenRulesWithTheOriginsOfTheirSettings) {
  write("run.yaml", kExample);
  EXPECT_EQ(message_of<ConfigError>([] {
              load_config("run.yaml",
                          {"moe.num_experts=60", "parallel.expert_size=8", "train.steps=0"},
                          ConfigUse::kTrain);
            }),
            "train.steps or train.minutes must be given: both are 0, the run would not end "
            "[train.steps: command line]\n"
            "moe.num_experts (60) must be a multiple of parallel.expert_size (8) "
            "[moe.num_experts: command line, parallel.expert_size: command line]");
  EXPECT_EQ(
      message_of<ConfigError>([] { load_config("run.yaml", {"moe.top_k=9"}, ConfigUse::kTrain); }),
      "moe.top_k (9) must not exceed moe.num_experts (8) [moe.num_experts: run.yaml:8, moe.top_k: "
      "command line]");
}

TEST_F(LoadTest, AsksForLessToDescribeThanToTrain) {
  write("run.yaml",
        "model: {num_layers: 2, hidden_size: 64, num_attention_heads: 4}\n"
        "moe: {num_experts: 8, ffn_hidden_size: 96}\n");
  EXPECT_NO_THROW(load_config("run.yaml", {}, ConfigUse::kDescribe));
  EXPECT_EQ(message_of<ConfigError>([] { load_config("run.yaml", {}, ConfigUse::kTrain); }),
            "run.dir must be given: folder of the run: checkpoints, metrics, resolved settings\n"
            "data.train must be given: prefixes of the tokenized files to train on\n"
            "data.sequence_length must be given: tokens of one training sequence\n"
            "train.global_batch_size must be given: sequences per optimizer step, over all ranks\n"
            "optimizer.lr must be given: largest learning rate");
}

TEST_F(LoadTest, ReturnsWarnings) {
  write("run.yaml", kExample);
  EXPECT_EQ(load_config("run.yaml", {"train.eval_every=5"}, ConfigUse::kTrain).warnings,
            Lines{"train.eval_every (5) has no effect: data.eval is empty [command line]"});
}

// What a model to start from says cannot be left out, unlike what the user says.
TEST_F(LoadTest, DoesNotWarnOfWhatTheModelToStartFromSays) {
  write("run.yaml", kExample);
  const GivenSettings given{
      .origin = "config.json", .values = {{"train.eval_every", {{"5"}, false}}}, .binding = {}};
  EXPECT_EQ(load_config("run.yaml", {}, ConfigUse::kTrain, given).warnings, Lines{});
  EXPECT_EQ(load_config("run.yaml", {"train.eval_every=5"}, ConfigUse::kTrain, given).warnings,
            Lines{"train.eval_every (5) has no effect: data.eval is empty [command line]"});
}

TEST_F(LoadTest, ReadsWithoutRulesForShowing) {
  write("run.yaml", "moe:\n  num_experts: 4\n  top_k: 9\n");
  const LoadedConfig loaded = read_config("run.yaml", {});
  EXPECT_EQ(loaded.config.moe.top_k, 9);
  EXPECT_EQ(message_of<ConfigError>([&] { check_config(loaded, ConfigUse::kDescribe); }),
            "model.num_layers must be given: decoder layers\n"
            "model.hidden_size must be given: width of the residual stream, in features\n"
            "model.num_attention_heads must be given: query heads of an attention layer; 0 when no "
            "layer has attention");
  EXPECT_EQ(message_of<ConfigError>([] { read_config("run.yaml", {"moe.top_k=x"}); }),
            "command line: moe.top_k must be a whole number, got \"x\"");
}

TEST_F(LoadTest, ReadsText) {
  const LoadedConfig loaded = load_config_text(kExample, "checkpoint step_5", ConfigUse::kTrain);
  EXPECT_EQ(loaded.config.optimizer.lr, 1e-3);
  EXPECT_EQ(loaded.origins.of("run.dir"), "checkpoint step_5:2");
  EXPECT_EQ(message_of<ConfigError>([] {
              load_config_text("moe:\n  topk: 1\nextends: no.yaml\n", "step_5", ConfigUse::kTrain);
            }),
            "step_5:3: extends no.yaml: cannot be read: No such file or directory\n"
            "step_5:2: unknown key moe.topk; did you mean moe.top_k?");
}

}  // namespace
}  // namespace switchyard
