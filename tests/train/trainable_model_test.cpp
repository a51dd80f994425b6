#include "train/trainable_model.h"

#include <filesystem>

#include <gtest/gtest.h>
#include <unistd.h>

#include <ATen/ATen.h>

#include "support/small_model.h"
#include "train/train_step.h"

namespace switchyard {
namespace {

namespace fs = std::filesystem;

// Four layers, the first of them dense, a tied embedding, selection biases.
Config small_tied_config() {
  Config config = small_config();
  config.model.num_layers = 4;
  config.model.tie_embeddings = true;
  config.moe.first_dense_layers = 1;
  config.moe.score_function = ScoreFunction::kSigmoid;
  config.moe.renormalize = true;
  config.moe.expert_bias = true;
  config.moe.bias_update_rate = 0.05;
  return config;
}

struct Case {
  Layout layout;
  DataSharding sharding = DataSharding::kNone;

  Config config() const {
    Config config = layout.apply(small_tied_config());
    config.parallel.data_sharding = sharding;
    return config;
  }
};

const std::vector<Case>& cases() {
  static const std::vector<Case> all = {
      {{.name = "one"}},
      {{.name = "pp2", .world_size = 2, .pipeline = 2}},
      {{.name = "pp2_vpp2", .world_size = 2, .pipeline = 2, .virtual_pipeline = 2}},
      {{.name = "pp3_alone", .world_size = 3, .pipeline = 3, .pipeline_layout = "E|tttt|L"}},
      {{.name = "pp2_tp2_dp2", .world_size = 8, .tensor = 2, .pipeline = 2},
       DataSharding::kOptimizer},
      {{.name = "pp2_dp2", .world_size = 4, .pipeline = 2}, DataSharding::kParameters},
      {{.name = "dp3", .world_size = 3}, DataSharding::kGradients},
      {{.name = "ep2_dp2", .world_size = 2, .expert = 2}, DataSharding::kOptimizer}};
  return all;
}

class SavedModel : public testing::Test {
 protected:
  SavedModel()
      : folder_(fs::path(testing::TempDir()) /
                fmt::format("saved_{}_{}", getpid(),
                            testing::UnitTest::GetInstance()->current_test_info()->name())) {}
  ~SavedModel() override { fs::remove_all(folder_); }

  std::string path(const std::string& name) const { return (folder_ / name).string(); }

  // Runs `body` on every rank of a layout, over a model of unset values.
  template <class Body>
  static void run(const Case& one, const Body& body) {
    run_ranks(one.layout.mesh(), [&](Groups& groups) {
      TrainableModel model(one.config(), groups, FirstValues::kUnset);
      body(model, groups);
    });
  }

  void train_and_save(const Case& one, const std::string& name) const {
    run_ranks(one.layout.mesh(), [&](Groups& groups) {
      TrainableModel trained(one.config(), groups);
      const TokenBatch batch = random_batch(one.config(), {5, 3}, 1, 7);
      for (int step = 0; step < 2; ++step) {
        (void)train_step(
            trained.model, trained.parameters, trained.optimizer, {batch, batch},
            {.learning_rate = 1e-2, .clip_grad_norm = 0, .weight_decay = std::nullopt});
      }
      write_checkpoint(path(name), {}, trained.parts(), groups[GroupName::kWorld]);
    });
  }

  void load_and_save(const Case& one, const std::string& from, const std::string& to) const {
    run(one, [&](TrainableModel& model, const Groups& groups) {
      load_checkpoint(path(from), model.parts(), groups[GroupName::kWorld]);
      model.after_load(2);
      write_checkpoint(path(to), {}, model.parts(), groups[GroupName::kWorld]);
    });
  }

  // Every logical tensor of a checkpoint.
  std::map<std::string, at::Tensor> values(const std::string& name) const {
    std::map<std::string, at::Tensor> all;
    run({}, [&](TrainableModel& model, const Groups& groups) {
      load_checkpoint(path(name), model.parts(), groups[GroupName::kWorld]);
      for (const TensorPart& part : model.parts()) {
        all[part.name] = part.values.clone();
      }
    });
    return all;
  }

  fs::path folder_;
};

TEST_F(SavedModel, HoldsTheSameBytesWhateverLayoutsItGoesThrough) {
  for (const Case& first : cases()) {
    const std::string saved = fmt::format("{}", first.layout.name);
    train_and_save(first, saved);
    const auto expected = values(saved);
    EXPECT_GT(expected.size(), 100U);
    for (const Case& second : cases()) {
      const std::string again = fmt::format("{}_{}", first.layout.name, second.layout.name);
      load_and_save(second, saved, again);
      for (const auto& [name, value] : values(again)) {
        EXPECT_TRUE(value.equal(expected.at(name))) << again << ": " << name;
      }
    }
  }
}

}  // namespace
}  // namespace switchyard
