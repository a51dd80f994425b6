#include "train/evaluate.h"

#include <filesystem>

#include <gtest/gtest.h>
#include <unistd.h>

#include <ATen/ATen.h>

#include "data/byte_tokenizer.h"
#include "data/indexed_dataset_writer.h"
#include "support/small_model.h"

namespace switchyard {
namespace {

class Evaluate : public testing::Test {
 protected:
  Evaluate()
      : folder_(std::filesystem::path(testing::TempDir()) / fmt::format("evaluate_{}", getpid())) {
    IndexedDatasetWriter writer((folder_ / "set").string(), tokenizer_);
    writer.add_document(tokenizer_.encode("a first document of some length, then"));
    writer.add_document(tokenizer_.encode("another that does not fill its last sequence"));
    writer.finish();
    config_ = small_config();
    config_.model.vocab_size = 320;
  }
  ~Evaluate() override { std::filesystem::remove_all(folder_); }

  EvaluationData data() const {
    return EvaluationData("data.eval", {(folder_ / "set").string()}, tokenizer_, 16);
  }

  EvalOutcome run(const Layout& layout, int64_t micro_batch_size, int64_t max_sequences) const {
    EvalOutcome outcome;
    run_ranks(layout.mesh(), [&](Groups& groups) {
      Parameters parameters(groups, Dtypes::fp64(), 3);
      const LanguageModel model(parameters, layout.apply(config_));
      const EvalOutcome mine = evaluate(model, data(), micro_batch_size, max_sequences, groups);
      if (groups.rank() == 0) {
        outcome = mine;
      }
    });
    return outcome;
  }

  std::filesystem::path folder_;
  ByteTokenizer tokenizer_;
  Config config_;
};

TEST_F(Evaluate, TakesEveryLabelOnceHoweverTheDataIsCut) {
  const EvalOutcome whole = run({.name = "one"}, 100, 0);
  EXPECT_EQ(whole.loss_weight, static_cast<double>(data().num_labels()));
  EXPECT_GT(whole.loss_sum, 0);
  const std::vector<Layout> layouts = {{.name = "one"},
                                       {.name = "dp2", .world_size = 2},
                                       {.name = "dp4", .world_size = 4},
                                       {.name = "ep2_dp4", .world_size = 4, .expert = 2},
                                       {.name = "tp2", .world_size = 2, .tensor = 2},
                                       {.name = "pp2_dp2", .world_size = 4, .pipeline = 2},
                                       {.name = "cp2", .world_size = 2, .context = 2},
                                       {.name = "cp2_gather_ep2_dp2",
                                        .world_size = 4,
                                        .expert = 2,
                                        .context = 2,
                                        .exchange = ContextExchange::kAllGather}};
  for (const Layout& layout : layouts) {
    for (const int64_t micro_batch_size : {1, 2, 3}) {
      const EvalOutcome cut = run(layout, micro_batch_size, 0);
      EXPECT_EQ(cut.loss_weight, whole.loss_weight) << layout.name;
      EXPECT_NEAR(cut.loss_sum, whole.loss_sum, 1e-9 * whole.loss_sum) << layout.name;
    }
  }
}

TEST_F(Evaluate, StopsAfterTheSequencesAskedFor) {
  EXPECT_EQ(run({.name = "one"}, 2, 3).loss_weight, 3 * 16);
  EXPECT_EQ(run({.name = "dp2", .world_size = 2}, 2, 3).loss_weight, 3 * 16);
}

}  // namespace
}  // namespace switchyard
