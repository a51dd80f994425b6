#include "train/train_step.h"

#include <cmath>
#include <filesystem>
#include <limits>
#include <mutex>

#include <fmt/ranges.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <ATen/ATen.h>

#include "config/recompute_modules.h"
#include "data/byte_tokenizer.h"
#include "data/evaluation_data.h"
#include "data/indexed_dataset_writer.h"
#include "support/small_model.h"

namespace switchyard {
namespace {

Config config_with_bias() {
  Config config = small_config();
  config.moe.score_function = ScoreFunction::kSigmoid;
  config.moe.renormalize = true;
  config.moe.expert_bias = true;
  config.moe.bias_update_rate = 0.05;
  return config;
}

// This rank's share of a global batch of four micro-batches.
std::vector<TokenBatch> batches_of(const Config& config, const Group& data, int step) {
  std::vector<TokenBatch> own;
  const ShardRange share = shard_range(4, data.size(), data.rank());
  for (int64_t i = share.begin; i < share.end; ++i) {
    own.push_back(random_batch(config, {5, 3}, 1, static_cast<uint64_t>(10 * step + i)));
  }
  return own;
}

struct Trained {
  Trained(const Groups& groups, const Config& config)
      : parameters(groups, Dtypes::of(config.train.precision), 3),
        model(parameters, config),
        optimizer(parameters, config.optimizer) {}

  StepOutcome step(const MicroBatches& batches) {
    return train_step(model, parameters, optimizer, batches,
                      {.learning_rate = 1e-2, .clip_grad_norm = 0.5, .weight_decay = std::nullopt});
  }

  Parameters parameters;
  LanguageModel model;
  AdamW optimizer;
};

void expect_equal_state(const Trained& one, const Trained& other) {
  EXPECT_EQ(one.optimizer.num_steps(), other.optimizer.num_steps());
  const auto& storages = one.parameters.storages();
  for (size_t i = 0; i < storages.size(); ++i) {
    const std::string& name = storages[i]->pieces[0].name();
    EXPECT_TRUE(storages[i]->master.equal(other.parameters.storages()[i]->master)) << name;
    EXPECT_TRUE(one.optimizer.moments()[i].first.equal(other.optimizer.moments()[i].first)) << name;
    EXPECT_TRUE(one.optimizer.moments()[i].second.equal(other.optimizer.moments()[i].second))
        << name;
  }
  for (size_t i = 0; i < one.parameters.buffers().size(); ++i) {
    EXPECT_TRUE(one.parameters.buffers()[i].tensor.equal(other.parameters.buffers()[i].tensor));
  }
}

const std::vector<Layout>& layouts() {
  static const std::vector<Layout> all = {{.name = "one"},
                                          {.name = "dp2", .world_size = 2},
                                          {.name = "tp2", .world_size = 2, .tensor = 2},
                                          {.name = "ep2", .world_size = 2, .expert = 2},
                                          {.name = "pp2", .world_size = 2, .pipeline = 2}};
  return all;
}

// The loss of one token of one rank is not a number, and all ranks skip the step: as if the batch
// had never come.
TEST(TrainStep, SkipsABatchAsIfItHadNeverCome) {
  for (const Layout& layout : layouts()) {
    const Config config = layout.apply(config_with_bias());
    run_ranks(layout.mesh(), [&](Groups& groups) {
      const Group& data = groups[GroupName::kDataContext];
      Trained skipping(groups, config);
      Trained sparing(groups, config);
      for (int step = 0; step < 4; ++step) {
        std::vector<TokenBatch> batches = batches_of(config, data, step);
        const bool is_bad = step == 2;
        if (is_bad && data.rank() == data.size() - 1) {
          batches.back().weights[0] = std::numeric_limits<float>::quiet_NaN();
        }
        const StepOutcome outcome = skipping.step(batches);
        EXPECT_EQ(!outcome.skipped.empty(), is_bad) << layout.name << " " << outcome.skipped;
        EXPECT_EQ(std::isfinite(outcome.grad_norm), !is_bad);
        if (!is_bad) {
          EXPECT_EQ(sparing.step(batches).skipped, "");
        }
      }
      EXPECT_EQ(skipping.optimizer.num_steps(), 3);
      expect_equal_state(skipping, sparing);
    });
  }
}

TEST(TrainStep, NamesTheBrokenWeightOnAllRanksWhicheverHoldsIt) {
  for (const Layout& layout : layouts()) {
    const Config config = layout.apply(config_with_bias());
    std::mutex mutex;
    std::vector<std::string> texts;
    run_ranks(layout.mesh(), [&](Groups& groups) {
      Trained trained(groups, config);
      for (const auto& storage : trained.parameters.storages()) {
        const auto& pieces = storage->pieces;
        if (pieces[0].name() == "layers.1.moe.experts.down" &&
            groups[GroupName::kDataContextTensor].rank() == 0) {
          storage->master.fill_(std::numeric_limits<double>::infinity());
          storage->publish_master();
        }
      }
      const StepOutcome outcome =
          trained.step(batches_of(config, groups[GroupName::kDataContext], 0));
      const std::lock_guard lock(mutex);
      texts.push_back(outcome.skipped);
    });
    for (const std::string& text : texts) {
      EXPECT_EQ(text, texts.front());
      EXPECT_NE(text.find("the language loss is nan; 1 of "), std::string::npos) << text;
      EXPECT_NE(text.find(" weights are not finite, the first of them layers.1.moe.experts.down; "),
                std::string::npos)
          << text;
      EXPECT_NE(text.find("gradients are not finite, nearest to the output that of head.weight"),
                std::string::npos)
          << text;
    }
  }
}

// One row of three documents has the losses, loads and gradients of three rows of one.
TEST(ComputeGradients, OfPackedDocumentsEqualThoseOfSeparateOnes) {
  const std::string folder = fmt::format("{}/train_step_{}/", testing::TempDir(), getpid());
  const ByteTokenizer tokenizer;
  const std::vector<std::string> documents = {"to be or not", "that is", "the question whether"};
  const auto write = [&](const std::string& name, const std::vector<std::string>& texts) {
    IndexedDatasetWriter writer(folder + name, tokenizer);
    for (const std::string& text : texts) {
      std::vector<int32_t> ids = tokenizer.encode(text);
      ids.push_back(tokenizer.end_of_document());
      writer.add_document(ids);
    }
    writer.finish();
    return folder + name;
  };
  const DatasetOptions packed{.documents = {Documents::kPacked, false}};
  const auto batch_of = [&](const std::string& prefix) {
    const EvaluationData data("data.eval", {prefix}, tokenizer, 1000, packed);
    return data.batch(0, 1);
  };
  std::vector<TokenBatch> separate;
  for (size_t i = 0; i < documents.size(); ++i) {
    separate.push_back(batch_of(write(std::to_string(i), {documents[i]})));
  }
  const TokenBatch together = batch_of(write("all", documents));
  EXPECT_EQ(together.table.num_sequences(), 3);

  Config config = config_with_bias();
  config.model.vocab_size = 320;
  // The end of a document is a token of the packed row, which the router balances, but not of a row
  // of its own.
  config.moe.aux_loss_coeff = 0;
  config.moe.z_loss_coeff = 0;
  const std::unique_ptr<Groups> groups = Groups::single();
  Trained one(*groups, config);
  Trained other(*groups, config);
  const StepOutcome of_packed = compute_gradients(one.model, one.parameters, {together});
  const StepOutcome of_separate = compute_gradients(other.model, other.parameters, separate);
  EXPECT_EQ(of_packed.loss_weight, of_separate.loss_weight);
  EXPECT_EQ(of_packed.loss_weight, 12 + 7 + 20);  // each document's tokens but its first
  EXPECT_NEAR(of_packed.loss_sum, of_separate.loss_sum, 1e-11 * of_packed.loss_sum);
  for (size_t i = 0; i < one.parameters.storages().size(); ++i) {
    const at::Tensor& expected = other.parameters.storages()[i]->gradient;
    const double difference =
        (one.parameters.storages()[i]->gradient - expected).norm().item<double>();
    EXPECT_LE(difference, 1e-9 * std::max(1.0, expected.norm().item<double>()))
        << one.parameters.storages()[i]->pieces[0].name();
  }
  std::filesystem::remove_all(folder);
}

TEST(TrainStep, TakesAWeightDecayInPlaceOfTheSettings) {
  const Config config = small_config();
  const std::unique_ptr<Groups> groups = Groups::single();
  Config without = config;
  without.optimizer.weight_decay = 0;
  Trained one(*groups, config);
  Trained other(*groups, without);
  const auto batches = batches_of(config, (*groups)[GroupName::kDataContext], 0);
  train_step(one.model, one.parameters, one.optimizer, batches, {1e-2, 0.5, 0.0});
  train_step(other.model, other.parameters, other.optimizer, batches, {1e-2, 0.5, std::nullopt});
  expect_equal_state(one, other);
}

// Whatever is computed again, three steps end in the same bits: with dense and MoE layers, shared
// experts, losses, dropped copies and two sequences per batch.
TEST(TrainStep, RecomputeChangesNoBit) {
  for (const Precision precision : {Precision::kFp32, Precision::kBf16}) {
    Config config = config_with_bias();
    config.train.precision = precision;
    config.moe.first_dense_layers = 1;
    config.moe.shared_expert_gate = true;
    config.routing.capacity_factor = 0.75;
    std::vector<Config> variants;
    const auto add = [&](Recompute recompute, const std::vector<std::string>& modules) {
      variants.push_back(config);
      variants.back().train.recompute = recompute;
      variants.back().train.recompute_modules = modules;
    };
    add(Recompute::kFull, {});
    for (const RecomputeMethod method : {RecomputeMethod::kUniform, RecomputeMethod::kBlock}) {
      for (const int64_t num_layers : {1, 2, 5}) {
        add(Recompute::kFull, {});
        variants.back().train.recompute_method = method;
        variants.back().train.recompute_layers = num_layers;
      }
    }
    for (const std::string_view module : RecomputeModules::kAll) {
      add(Recompute::kModules, {std::string(module)});
    }
    add(Recompute::kModules, {"core_attention", "norms", "mlp", "experts", "shared_expert"});
    add(Recompute::kModules, {"norms", "mlp", "moe"});
    for (const Layout& layout : {layouts()[0], layouts()[2], layouts()[3]}) {
      run_ranks(layout.mesh(), [&](Groups& groups) {
        const Group& data = groups[GroupName::kDataContext];
        Trained plain(groups, layout.apply(config));
        for (int step = 0; step < 3; ++step) {
          plain.step(batches_of(config, data, step));
        }
        for (const Config& variant : variants) {
          SCOPED_TRACE(
              fmt::format("{} {}", layout.name, fmt::join(variant.train.recompute_modules, " ")));
          Trained again(groups, layout.apply(variant));
          for (int step = 0; step < 3; ++step) {
            again.step(batches_of(config, data, step));
          }
          expect_equal_state(again, plain);
        }
      });
    }
  }
}

// A batch that is read as it is needed gives the same step, and at most one micro-batch of it is
// held. With a balance loss over the steps so far, which memos carry on.
TEST(TrainStep, ReadsMicroBatchesWhenTheyAreNeeded) {
  Config config = small_config();
  config.moe.global_aux_loss_coeff = 0.1;
  const auto groups = Groups::single();
  Trained whole(*groups, config);
  Trained read(*groups, config);
  const std::vector<TokenBatch> batches = batches_of(config, (*groups)[GroupName::kData], 1);
  std::vector<at::Tensor> given;
  const MicroBatches lazily(std::ssize(batches), [&](int64_t index) {
    for (const at::Tensor& earlier : given) {
      // Held here and by whoever was reading last.
      EXPECT_LE(earlier.use_count(), given.back().is_same(earlier) ? 2U : 1U);
    }
    TokenBatch batch = batches[static_cast<size_t>(index)];
    batch.weights = batch.weights.clone();
    given.push_back(batch.weights);
    return batch;
  });
  const StepOutcome one = whole.step(batches);
  const StepOutcome other = read.step(lazily);
  EXPECT_EQ(one.loss_sum, other.loss_sum);
  EXPECT_EQ(one.global_balance_loss, other.global_balance_loss);
  EXPECT_EQ(one.grad_norm, other.grad_norm);
  EXPECT_GE(given.size(), 2 * batches.size() - 1);
  expect_equal_state(whole, read);
}

}  // namespace
}  // namespace switchyard
