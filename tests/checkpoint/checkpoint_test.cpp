#include "checkpoint/checkpoint.h"

#include <gtest/gtest.h>

#include <ATen/ATen.h>

#include "checkpoint/checkpoint_folder.h"
#include "checkpoint/checkpoint_tests.h"
#include "checkpoint/safetensors.h"
#include "checkpoint/sealed_json.h"
#include "checkpoint/test_model.h"
#include "parallel/launch.h"

namespace switchyard {
namespace {

// One rank, its folder of checkpoints, and two tensors in it.
class CheckpointTest : public testing::Test {
 protected:
  std::filesystem::path save(int64_t step, int64_t keep = 0) {
    first_.fill_(step);
    return save_checkpoint(folder_.path(), record_at(step), parts(), world(), keep);
  }
  std::vector<TensorPart> parts() const {
    return {{"first", {2, 3}, {0, 0}, first_}, {"second", {4}, {0}, second_}};
  }
  const Group& world() const { return (*groups_)[GroupName::kWorld]; }

  std::string refusal(const std::vector<TensorPart>& parts, const LoadOptions& options = {}) const {
    return message_of<CheckpointError>(
        [&] { load_checkpoint(folder_ / "step_5", parts, world(), options); });
  }
  std::string source() const { return (folder_ / "step_5").string(); }
  std::vector<std::string> names() const {
    std::vector<std::string> names;
    for (const auto& entry : std::filesystem::directory_iterator(folder_.path())) {
      names.push_back(entry.path().filename().string());
    }
    std::sort(names.begin(), names.end());
    return names;
  }

  TemporaryFolder folder_;
  std::unique_ptr<Groups> groups_ = Groups::single();
  at::Tensor first_ = at::zeros({2, 3});
  at::Tensor second_ = at::arange(4, at::kDouble);
};

TEST_F(CheckpointTest, LoadsWhatWasSaved) {
  CheckpointRecord record = record_at(5);
  record.samples_consumed = 320;
  record.extra["losses"] = {0.1, 0.2};
  first_.copy_(at::arange(6).view({2, 3}) / 7);
  const auto path = save_checkpoint(folder_.path(), record, parts(), world(), 0);
  EXPECT_EQ(path, folder_ / "step_5");
  const at::Tensor expected = first_.clone();
  first_.zero_();
  second_.zero_();
  EXPECT_EQ(to_json(load_checkpoint(path, parts(), world())), to_json(record));
  EXPECT_TRUE(first_.equal(expected));
  EXPECT_TRUE(second_.equal(at::arange(4, at::kDouble)));
  EXPECT_EQ(to_json(read_record(path)), to_json(record));
}

TEST_F(CheckpointTest, OfOneRankIsAPlainSafetensorsFile) {
  const SafetensorsFile file(save(5) / "rank_00000.safetensors");
  EXPECT_TRUE(file.tensor("first").equal(at::full({2, 3}, 5.F)));
  EXPECT_TRUE(file.tensor("second").equal(second_));
}

TEST_F(CheckpointTest, MovesLatestAndKeepsTheNewest) {
  EXPECT_FALSE(find_latest(folder_.path()));
  for (const int64_t step : {1, 2, 3, 4}) {
    save(step, 2);
    EXPECT_EQ(find_latest(folder_.path()), folder_ / step_name(step));
  }
  EXPECT_EQ(names(), (std::vector<std::string>{"latest", "step_3", "step_4"}));
}

TEST_F(CheckpointTest, ReplacesOneOfTheSameStep) {
  save(5);
  second_.fill_(7);
  save(5);
  second_.zero_();
  load_checkpoint(folder_ / "step_5", parts(), world());
  EXPECT_TRUE(second_.eq(7).all().item<bool>());
  EXPECT_EQ(names(), (std::vector<std::string>{"latest", "step_5"}));
}

TEST_F(CheckpointTest, FollowsLatestWhenARunWasRolledBack) {
  save(10);
  save(20);
  save(5);  // `latest` names it although others have more steps
  const auto loaded = load_latest_checkpoint(folder_.path(), parts(), world());
  ASSERT_TRUE(loaded);
  EXPECT_EQ(loaded->record.step, 5);
  std::filesystem::remove_all(folder_ / "step_5");
  std::filesystem::remove(folder_ / "latest");
  EXPECT_EQ(load_latest_checkpoint(folder_.path(), parts(), world())->record.step, 20);
}

TEST_F(CheckpointTest, LoadsNothingFromAFolderWithoutCheckpoints) {
  EXPECT_FALSE(load_latest_checkpoint(folder_.path(), parts(), world()));
  EXPECT_FALSE(load_latest_checkpoint(folder_ / "none", parts(), world()));
  std::filesystem::create_directory(folder_ / "step_9.partial");
  EXPECT_FALSE(load_latest_checkpoint(folder_.path(), parts(), world()));
}

TEST_F(CheckpointTest, IgnoresAnUnfinishedSaveAndTheNextOneDeletesIt) {
  save(5);
  std::filesystem::rename(save(6), folder_ / "step_6.partial");
  EXPECT_EQ(load_latest_checkpoint(folder_.path(), parts(), world())->record.step, 5);
  save(7);
  EXPECT_EQ(names(), (std::vector<std::string>{"latest", "step_5", "step_7"}));
}

TEST_F(CheckpointTest, FillsViewsWithGapsAndPartsOfATensor) {
  second_.copy_(at::tensor({10, 11, 12, 13}));
  save(5);
  const at::Tensor wide = at::zeros({3, 4});
  const at::Tensor middle = at::zeros({2}, at::kDouble);
  load_checkpoint(folder_ / "step_5",
                  {{"first", {2, 3}, {0, 0}, wide.narrow(0, 0, 2).narrow(1, 1, 3)},
                   {"second", {4}, {1}, middle},
                   {"second", {4}, {3}, at::zeros({0}, at::kDouble)}},
                  world());
  EXPECT_TRUE(wide.equal(
      at::tensor({0.F, 5.F, 5.F, 5.F, 0.F, 5.F, 5.F, 5.F, 0.F, 0.F, 0.F, 0.F}).view({3, 4})));
  EXPECT_TRUE(middle.equal(at::tensor({11., 12.})));
}

TEST_F(CheckpointTest, NamesTheTensorsThatTheModelHasAndTheCheckpointLacks) {
  save(5);
  auto more = parts();
  more.push_back({"third", {1}, {0}, at::zeros({1})});
  EXPECT_EQ(refusal(more), source() +
                               ": has no tensor \"third\": it belongs to a model of another "
                               "shape");
  more.push_back({"fourth", {1}, {0}, at::zeros({1})});
  EXPECT_EQ(refusal(more), source() +
                               ": has no tensor \"third\" (and 1 more): it belongs to a "
                               "model of another shape");
}

TEST_F(CheckpointTest, NamesTheTensorsThatTheModelLacksUnlessToldToLeaveThem) {
  save(5);
  const std::vector<TensorPart> less{parts()[1]};
  EXPECT_EQ(refusal(less), source() +
                               ": holds tensor \"first\", which this model does not have: it "
                               "belongs to a model of another shape");
  EXPECT_EQ(refusal({}), source() +
                             ": holds tensor \"first\" (and 1 more), which this model does "
                             "not have: it belongs to a model of another shape");
  EXPECT_EQ(refusal(less, {.ignored_prefixes = {"other", "fir"}}), "");
}

TEST_F(CheckpointTest, LoadsIntoADtypeThatLosesNoBit) {
  save(5);
  auto wider = parts();
  wider[0] = {"first", {2, 3}, {0, 0}, at::zeros({2, 3}, at::kDouble)};
  EXPECT_EQ(refusal(wider), "");
  EXPECT_TRUE(at::equal(wider[0].values, first_.to(at::kDouble)));
}

TEST_F(CheckpointTest, NamesTheTensorOfAnotherShapeOrDtype) {
  save(5);
  auto other = parts();
  other[0] = {"first", {2, 4}, {0, 0}, at::zeros({2, 4})};
  EXPECT_EQ(refusal(other), source() +
                                ": tensor \"first\" is F32 [2, 3], this model's is F32 "
                                "[2, 4]: it belongs to a model of another shape");
  other[0] = {"first", {2, 3}, {0, 0}, at::zeros({2, 3}, at::kBFloat16)};
  EXPECT_EQ(refusal(other), source() +
                                ": tensor \"first\" is F32 [2, 3], this run keeps it as BF16 "
                                "[2, 3]: set train.precision to what the checkpoint was made "
                                "with");
  // Another model is no damage: an older checkpoint would not help, and none is tried.
  EXPECT_THROW(load_latest_checkpoint(folder_.path(), other, world()), CheckpointError);
  EXPECT_EQ(message_of<DamagedCheckpoint>([&] {
              try {
                load_latest_checkpoint(folder_.path(), other, world());
              } catch (const DamagedCheckpoint&) {
                throw;
              } catch (const CheckpointError&) {
              }
            }),
            "");
}

TEST_F(CheckpointTest, AsksWhetherTheRecordWillDoBeforeItReadsTensors) {
  save(5);
  first_.zero_();
  const LoadOptions options{.check_record = [](const CheckpointRecord& record) {
    throw ConfigError("another run: " + record.fingerprint);
  }};
  EXPECT_EQ(message_of<ConfigError>(
                [&] { load_latest_checkpoint(folder_.path(), parts(), world(), options); }),
            "another run: print 5");
  EXPECT_TRUE(first_.eq(0).all().item<bool>());
}

TEST_F(CheckpointTest, WritesToAPathOfItsOwn) {
  const auto path = folder_ / "imports/model";
  write_checkpoint(path, record_at(0), parts(), world());
  first_.fill_(1);
  load_checkpoint(path, parts(), world());
  EXPECT_TRUE(first_.eq(0).all().item<bool>());
  EXPECT_EQ(names(), (std::vector<std::string>{"imports"}));
}

TEST_F(CheckpointTest, TakesThePlaceOfNothingButACheckpoint) {
  const auto message = [&](const std::string& name) {
    return message_of<CheckpointError>(
        [&] { write_checkpoint(folder_ / name, record_at(5), parts(), world()); });
  };
  const auto expected = [&](const std::string& name) {
    return (folder_ / name).string() +
           " exists and is no checkpoint: move it away or choose another path";
  };
  write_bytes(folder_ / "step_5", "a file");
  EXPECT_EQ(message("step_5"), expected("step_5"));
  std::filesystem::create_directories(folder_ / "home/work");
  EXPECT_EQ(message("home"), expected("home"));
  EXPECT_EQ(names(), (std::vector<std::string>{"home", "step_5"}));
  EXPECT_EQ(file_bytes(folder_ / "step_5"), "a file");
  EXPECT_EQ(message("home/work"), "");  // an empty folder
  EXPECT_EQ(message("home/work"), "");  // and now a checkpoint
}

TEST_F(CheckpointTest, TakesThePlaceOfADamagedStep) {
  std::filesystem::remove(save(5) / "record.json");
  save(5);
  EXPECT_EQ(refusal(parts()), "");
}

// Slices of a tensor of three blocks, across their borders and far from them.
TEST_F(CheckpointTest, ReadsPartsAcrossTheBordersOfBlocks) {
  const at::Tensor whole = at::arange(2'500'000, at::kFloat).view({2500, 1000});  // 10 MB
  write_checkpoint(folder_ / "x", record_at(1), {{"x", {2500, 1000}, {0, 0}, whole}}, world());
  for (const auto& [begin, rows] :
       {std::pair{0, 2500}, {1, 2499}, {1040, 20}, {2090, 410}, {0, 1}, {2499, 1}}) {
    for (const auto& [first, columns] : {std::pair{0, 1000}, {999, 1}, {500, 100}}) {
      const at::Tensor part = at::zeros({rows, columns});
      load_checkpoint(folder_ / "x", {{"x", {2500, 1000}, {begin, first}, part}}, world());
      EXPECT_TRUE(part.equal(whole.narrow(0, begin, rows).narrow(1, first, columns)))
          << begin << " " << first;
    }
  }
}

TEST_F(CheckpointTest, RefusesATensorThatIsSavedTwice) {
  auto twice = parts();
  twice.push_back(twice[0]);
  EXPECT_EQ(message_of<CheckpointError>(
                [&] { save_checkpoint(folder_.path(), record_at(5), twice, world(), 0); }),
            (folder_ / "step_5.partial/rank_00000.safetensors").string() +
                ": tensor \"first\" comes twice");
  EXPECT_TRUE(names().empty());
}

TEST_F(CheckpointTest, RefusesAVersionItDoesNotKnow) {
  const auto path = save(5) / "record.json";
  SealedJson sealed = read_sealed_json(path);
  sealed.content["version"] = 2;
  write_sealed_json(path, sealed.content, true);
  EXPECT_EQ(refusal(parts()),
            path.string() +
                ": is of version 2, this program knows versions up to 1: use the version "
                "that wrote it or a newer one");
}

}  // namespace
}  // namespace switchyard
