#include <gtest/gtest.h>

#include <ATen/ATen.h>

#include "base/error.h"
#include "hub/export.h"
#include "hub/hub_tests.h"
#include "parallel/launch.h"
#include "train/forward.h"

// Models of transformers, loaded from their directories, against what transformers makes of them.
namespace switchyard {
namespace {

LoadedModel load(const std::filesystem::path& path, const Groups& groups) {
  return load_model(path, groups, {.precision = Precision::kFp32, .auxiliary_losses = false});
}

// An expert that no token chose has a gradient of zero, in both.
double relative(const at::Tensor& actual, const at::Tensor& expected) {
  const auto difference = (actual - expected).norm().item<double>();
  return difference == 0 ? 0 : difference / expected.norm().item<double>();
}

class HfModels : public testing::TestWithParam<std::string> {
 protected:
  HfModels()
      : groups_(Groups::single()),
        golden_(golden_directory(GetParam()) / "expected.safetensors"),
        loaded_(load(golden_directory(GetParam()), *groups_)) {}

  ForwardResult forward(LoadedModel& loaded) const {
    return run_forward(loaded, golden_.tensor("tokens"), golden_.tensor("labels"), true);
  }

  TemporaryFolder folder_;
  std::unique_ptr<Groups> groups_;
  SafetensorsFile golden_;
  LoadedModel loaded_;
};

// Both compute in fp32 on the same weights; the bounds are those of the comparison with live
// models, tests/parity/families_parity.py.
TEST_P(HfModels, GiveTransformersLogitsLossAndGradients) {
  const ForwardResult result = forward(loaded_);
  const at::Tensor expected = golden_.tensor("logits");
  EXPECT_LE((result.logits - expected).abs().max().item<double>(),
            1e-5 * expected.abs().max().item<double>());
  const auto loss = golden_.tensor("loss").item<double>();
  EXPECT_NEAR(result.loss.item<double>(), loss, 1e-6 * loss);
  size_t num_gradients = 0;
  for (const SafetensorsEntry& entry : golden_.entries()) {
    if (entry.name.starts_with("grad.")) {
      const std::string name = entry.name.substr(5);
      ASSERT_TRUE(result.gradients.contains(name)) << name;
      EXPECT_LE(relative(result.gradients.at(name), golden_.tensor(entry.name)), 1e-4) << name;
      ++num_gradients;
    }
  }
  EXPECT_EQ(result.gradients.size(), num_gradients);
}

TEST_P(HfModels, AreTheSameAfterAnImport) {
  import_model(*loaded_.source.hf, folder_ / "checkpoint", [](const ConversionProgress&) {});
  LoadedModel imported = load(folder_ / "checkpoint", *groups_);
  const ForwardResult before = forward(loaded_);
  const ForwardResult after = forward(imported);
  EXPECT_TRUE(at::equal(before.logits, after.logits));
  ASSERT_EQ(before.gradients.size(), after.gradients.size());
  for (const auto& [name, gradient] : before.gradients) {
    EXPECT_TRUE(at::equal(gradient, after.gradients.at(name))) << name;
  }
}

// Each of two ranks reads its own part of the files.
TEST_P(HfModels, LoadInAnotherLayoutToTheSameLogits) {
  const at::Tensor expected = forward(loaded_).logits;
  run_ranks({.world_size = 2, .tensor = 2, .expert = 2}, [&](const Groups& groups) {
    const LoadedModel part = load(golden_directory(GetParam()), groups);
    TokenBatch batch;
    batch.tokens = golden_.tensor("tokens").reshape({-1});
    batch.labels = batch.tokens;
    batch.weights = at::ones({batch.tokens.size(0)});
    batch.table = SequenceTable::from_lengths({13, 13});
    const at::Tensor logits = part.model->logits(batch).view(expected.sizes());
    EXPECT_LE((logits - expected).abs().max().item<double>(),
              1e-5 * expected.abs().max().item<double>());
  });
}

INSTANTIATE_TEST_SUITE_P(Families, HfModels, testing::ValuesIn(kGoldenFamilies),
                         [](const auto& instance) { return instance.param; });

TEST(RunForward, RefusesTokensOutsideTheVocabulary) {
  const std::unique_ptr<Groups> groups = Groups::single();
  LoadedModel loaded = load(golden_directory("llama"), *groups);
  EXPECT_EQ(message_of<ConfigError>([&] {
              run_forward(loaded, at::full({1, 2}, 48, at::kLong), {}, false);
            }),
            "tokens are from 48 to 48: the model's vocabulary is from 0 to 47");
  EXPECT_EQ(message_of<ConfigError>([&] {
              run_forward(loaded, at::zeros({1, 2}, at::kLong), {}, true);
            }),
            "gradients need labels");
}

TEST(LoadModel, RefusesATokenizerOfAnotherModel) {
  const std::unique_ptr<Groups> groups = Groups::single();
  const LoadedModel loaded = load(golden_directory("llama"), *groups);
  const std::string path = golden_directory("llama").string();
  EXPECT_EQ(message_of<ConfigError>([&] { loaded.make_tokenizer(); }),
            path + " comes without a tokenizer: name one with --tokenizer");
  EXPECT_EQ(message_of<ConfigError>([&] { loaded.make_tokenizer("bytes"); }),
            "tokenizer bytes has 257 tokens, the vocabulary of " + path +
                " has 48: it belongs to another model");
}

TEST(LoadModel, RefusesWhatIsNoModel) {
  const std::unique_ptr<Groups> groups = Groups::single();
  const TemporaryFolder folder;
  EXPECT_EQ(message_of<FileError>([&] { load_model(folder.path(), *groups); }),
            folder.path().string() +
                " is no model: expected a Hugging Face directory, a checkpoint, or a run directory "
                "with checkpoints");
  EXPECT_EQ(message_of<FileError>([&] { load_model(folder / "none", *groups); }),
            (folder / "none").string() + " does not exist: expected a model");
}

}  // namespace
}  // namespace switchyard
