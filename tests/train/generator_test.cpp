#include "train/generator.h"

#include <cmath>
#include <map>

#include <gtest/gtest.h>

#include <ATen/ATen.h>

#include "support/small_model.h"

namespace switchyard {
namespace {

// Five tokens of probability 0.4, 0.3, 0.15, 0.1, 0.05 in mixed order, then padding of the
// vocabulary that would always win.
at::Tensor logits() {
  return at::log(at::tensor({0.1, 0.4, 0.05, 0.3, 0.15, 1e9}, at::kDouble)).to(at::kFloat);
}
constexpr int64_t kVocabulary = 5;

std::map<int64_t, double> shares(const SamplingOptions& options) {
  constexpr int64_t kDraws = 20000;
  std::map<int64_t, double> share;
  for (int64_t position = 0; position < kDraws; ++position) {
    share[sample_token(logits(), kVocabulary, options, position)] += 1.0 / kDraws;
  }
  return share;
}

TEST(SampleToken, TakesTheLikeliestAtTemperatureZeroAndTheLowestIdOfEquals) {
  EXPECT_EQ(sample_token(logits(), kVocabulary, {.temperature = 0}, 0), 1);
  EXPECT_EQ(sample_token(at::zeros({6}), kVocabulary, {.temperature = 0}, 0), 0);
}

TEST(SampleToken, DrawsEachTokenAsOftenAsItsProbability) {
  const auto share = shares({});
  EXPECT_NEAR(share.at(1), 0.4, 0.02);
  EXPECT_NEAR(share.at(3), 0.3, 0.02);
  EXPECT_NEAR(share.at(4), 0.15, 0.02);
  EXPECT_NEAR(share.at(0), 0.1, 0.02);
  EXPECT_NEAR(share.at(2), 0.05, 0.02);
  EXPECT_FALSE(share.contains(5));
}

TEST(SampleToken, SharpensWithTheTemperature) {
  // Probabilities squared: 0.16, 0.09, 0.0225, 0.01, 0.0025 of 0.285.
  const auto share = shares({.temperature = 0.5});
  EXPECT_NEAR(share.at(1), 0.16 / 0.285, 0.02);
  EXPECT_NEAR(share.at(3), 0.09 / 0.285, 0.02);
}

TEST(SampleToken, KeepsOnlyTheTopK) {
  const auto share = shares({.top_k = 2});
  EXPECT_EQ(share.size(), 2U);
  EXPECT_NEAR(share.at(1), 0.4 / 0.7, 0.02);
  EXPECT_NEAR(share.at(3), 0.3 / 0.7, 0.02);
}

TEST(SampleToken, KeepsTheHeadThatReachesTopP) {
  const auto share = shares({.top_p = 0.8});  // 0.4 + 0.3 falls short, 0.15 more reaches it
  EXPECT_EQ(share.size(), 3U);
  EXPECT_NEAR(share.at(4), 0.15 / 0.85, 0.02);
  EXPECT_EQ(shares({.top_p = 0}).size(), 1U);
}

TEST(SampleToken, DependsOnSeedAndPositionAlone) {
  const SamplingOptions options{.seed = 9};
  EXPECT_EQ(sample_token(logits(), kVocabulary, options, 3),
            sample_token(logits(), kVocabulary, options, 3));
  EXPECT_NE(shares({.seed = 1}).at(1), shares({.seed = 2}).at(1));
}

TEST(Generate, ContinuesGreedilyAsTheWholeForwardPassWould) {
  Config config = small_config();
  config.model.vocab_size = 320;
  const std::unique_ptr<Groups> groups = Groups::single();
  Parameters parameters(*groups, Dtypes::fp64(), 3);
  const LanguageModel model(parameters, config);
  const auto tokenizer = make_tokenizer("bytes");
  std::string text = "To be";
  std::string expected = text;
  for (int i = 0; i < 12; ++i) {
    const auto ids = tokenizer->encode(expected);
    TokenBatch batch;
    batch.tokens = at::tensor(std::vector<int64_t>(ids.begin(), ids.end()), at::kLong);
    batch.table = SequenceTable::from_lengths({batch.tokens.size(0)});
    const auto id = static_cast<int32_t>(
        sample_token(model.logits(batch)[-1], tokenizer->vocab_size(), {.temperature = 0}, 0));
    if (id == tokenizer->end_of_document()) {
      break;
    }
    expected += tokenizer->decode({&id, 1});
  }
  generate(model, *tokenizer, {"To be"}, {.max_tokens = 12, .temperature = 0},
           [&](size_t, const std::string& piece) { text += piece; });
  EXPECT_EQ(text, expected);
  EXPECT_GT(text.size(), 5U);
}

// A model that was trained on short sequences continues a longer text from the last half of its
// context.
TEST(Generate, ForgetsWhatLiesBeforeTheContext) {
  Config config = small_config();
  config.model.vocab_size = 320;
  const std::unique_ptr<Groups> groups = Groups::single();
  Parameters parameters(*groups, Dtypes::fp64(), 3);
  const LanguageModel model(parameters, config);
  const auto tokenizer = make_tokenizer("bytes");
  const auto next = [&](const std::string& prompt, int64_t context_length) {
    std::string text;
    generate(model, *tokenizer, {prompt},
             {.max_tokens = 1, .temperature = 0, .context_length = context_length},
             [&](size_t, const std::string& piece) { text += piece; });
    return text;
  };
  EXPECT_EQ(next("what was said before, and then this", 8), next("this", 8));
  EXPECT_EQ(next("what was said before, and then this", 8),
            next("something else entirely, then this", 8));
}

// Prompts of unequal length, whose texts end at different times and outgrow the context.
TEST(Generate, GivesEachPromptOfABatchWhatItGivesAlone) {
  Config config = small_config();
  config.model.vocab_size = 320;
  for (const Dtypes& dtypes : {Dtypes::fp64(), Dtypes::fp32(), Dtypes::bf16()}) {
    const std::unique_ptr<Groups> groups = Groups::single();
    Parameters parameters(*groups, dtypes, 3);
    const LanguageModel model(parameters, config);
    const auto tokenizer = make_tokenizer("bytes");
    const std::vector<std::string> prompts = {"a", "To be, or not to be", "the question", "so",
                                              "whether it is nobler in the mind"};
    for (const double temperature : {0.0, 1.0}) {
      const SamplingOptions options{
          .max_tokens = 60, .temperature = temperature, .seed = 4, .context_length = 40};
      std::vector<std::string> streamed(prompts.size());
      const auto together =
          generate(model, *tokenizer, prompts, options,
                   [&](size_t index, const std::string& piece) { streamed[index] += piece; });
      for (size_t i = 0; i < prompts.size(); ++i) {
        const auto alone =
            generate(model, *tokenizer, {prompts[i]}, options, [](size_t, const std::string&) {});
        EXPECT_EQ(together[i].ids, alone[0].ids) << temperature << " " << prompts[i];
        EXPECT_EQ(together[i].is_ended, alone[0].is_ended);
        EXPECT_EQ(together[i].text, streamed[i]);
        EXPECT_EQ(together[i].is_ended, std::ssize(together[i].ids) < options.max_tokens);
      }
    }
  }
}

// A small model of bytes.
class GenerateBytes : public testing::Test {
 protected:
  static Config config() {
    Config config = small_config();
    config.model.vocab_size = 320;
    return config;
  }
  Generated continued(const SamplingOptions& options) const {
    return generate(model_, *tokenizer_, {"x"}, options, [](size_t, const std::string&) {})[0];
  }

  std::unique_ptr<Groups> groups_ = Groups::single();
  Parameters parameters_{*groups_, Dtypes::fp64(), 3};
  LanguageModel model_{parameters_, config()};
  std::unique_ptr<Tokenizer> tokenizer_ = make_tokenizer("bytes");
};

TEST_F(GenerateBytes, EndsATextAtAnyOfTheModelsEndIds) {
  SamplingOptions options{.max_tokens = 12, .temperature = 0};
  const Generated whole = continued(options);
  const int32_t last = whole.ids.back();
  const auto first = std::find(whole.ids.begin(), whole.ids.end(), last);
  options.end_ids = {319, last};
  const Generated ended = continued(options);
  EXPECT_TRUE(ended.is_ended);
  EXPECT_EQ(ended.ids, std::vector<int32_t>(whole.ids.begin(), first));
}

TEST_F(GenerateBytes, GoesOnAfterAnEndOfDocumentWhenAsked) {
  // At a high temperature every token comes soon.
  SamplingOptions options{.max_tokens = 2000, .temperature = 50};
  const Generated stopped = continued(options);
  EXPECT_TRUE(stopped.is_ended);
  EXPECT_LT(stopped.ids.size(), 2000U);
  options.ignore_end = true;
  options.max_tokens = std::ssize(stopped.ids) + 10;
  const Generated on = continued(options);
  EXPECT_FALSE(on.is_ended);
  EXPECT_EQ(std::ssize(on.ids), options.max_tokens);
  EXPECT_EQ(on.ids[stopped.ids.size()], tokenizer_->end_of_document());
}

}  // namespace
}  // namespace switchyard
