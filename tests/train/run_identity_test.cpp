#include "train/run_identity.h"

#include <gtest/gtest.h>

#include "config/manual.h"
#include "config/settings.h"
#include "support/small_model.h"

namespace switchyard {
namespace {

TEST(RunIdentity, StaysWhenOnlyPlaceLayoutOrReportingChange) {
  const Config saved = small_config();
  Config now = saved;
  now.run.dir = "elsewhere";
  now.parallel.tensor_size = 4;
  now.checkpoint.every = 7;
  now.train.threads = 9;
  now.train.log_every = 3;
  now.train.micro_batch_size = 2;
  EXPECT_EQ(run_fingerprint(saved), run_fingerprint(now));
  EXPECT_TRUE(setting_changes(saved, now).empty());
}

TEST(RunIdentity, NamesEachSettingThatMakesItAnotherRun) {
  const Config saved = small_config();
  Config now = saved;
  now.optimizer.lr = 0.5;
  now.run.seed = 8;
  now.moe.top_k = 1;
  EXPECT_NE(run_fingerprint(saved), run_fingerprint(now));
  EXPECT_EQ(setting_changes(saved, now),
            (std::vector<std::string>{"run.seed: 3 in the checkpoint, 8 now",
                                      "moe.top_k: 2 in the checkpoint, 1 now",
                                      "optimizer.lr: 0.01 in the checkpoint, 0.5 now"}));
}

// Every setting is on one side or the other by decision: a new one must be put into this list or be
// part of the identity.
TEST(RunIdentity, LeavesOnlyTheseSettingsFree) {
  std::vector<std::string> free;
  for (const Setting& setting : settings()) {
    if (!is_part_of_identity(setting.name) && !setting.name.starts_with("parallel.")) {
      free.push_back(setting.name);
    }
  }
  EXPECT_EQ(free, (std::vector<std::string>{"run.dir",
                                            "moe.dispatcher",
                                            "data.train",
                                            "data.eval",
                                            "data.tokenizer",
                                            "train.steps",
                                            "train.minutes",
                                            "train.micro_batch_size",
                                            "train.recompute",
                                            "train.recompute_modules",
                                            "train.recompute_method",
                                            "train.recompute_layers",
                                            "train.offload_modules",
                                            "train.eval_every",
                                            "train.eval_batches",
                                            "train.max_skipped_steps",
                                            "train.threads",
                                            "train.log_every",
                                            "optimizer.offload",
                                            "checkpoint.every",
                                            "checkpoint.keep",
                                            "checkpoint.asynchronous",
                                            "metrics.tensorboard",
                                            "metrics.peak_tflops"}));
}

RunContents small_contents() {
  return {.sets = {{"0.3:a", {5, 100, 7}}, {"0.7:b", {6, 200, 8}}},
          .tokenizer = "bytes",
          .tokenizer_hash = 0xf000000000000001U,
          .sequences_per_accumulation_step = 0};
}

TEST(RunContents, ReadBackAsTheyWereWritten) {
  const RunContents saved = small_contents();
  const RunContents read = run_contents_from_json(to_json(saved), "record.json");
  EXPECT_EQ(read.sets, saved.sets);
  EXPECT_EQ(read.tokenizer_hash, saved.tokenizer_hash);
  EXPECT_TRUE(content_changes(saved, read).empty());
}

TEST(RunContents, AreTheSameElsewhere) {
  const RunContents saved = small_contents();
  RunContents now = saved;
  now.sets[0].entry = "0.30:elsewhere/a";
  now.tokenizer = "another/folder";
  EXPECT_TRUE(content_changes(saved, now).empty());
}

TEST(RunContents, NameEachDifference) {
  const RunContents saved = small_contents();
  RunContents now = saved;
  now.sets[0].identity.checksum = 9;
  now.sets[1].entry = "0.6:b";
  now.sets.push_back({"0.1:c", {1, 2, 3}});
  now.tokenizer_hash = 2;
  now.sequences_per_accumulation_step = 4;
  EXPECT_EQ(content_changes(saved, now),
            (std::vector<std::string>{
                "data sets in data.train: 2 in the checkpoint, 3 now",
                "data.train 0.3:a: 5 documents, 100 tokens, checksum 00000007 in the checkpoint, 5 "
                "documents, 100 tokens, checksum 00000009 now",
                "weight of data.train 0.6:b: 0.7 in the checkpoint, 0.6 now",
                "data.tokenizer: bytes (f000000000000001) in the checkpoint, bytes "
                "(0000000000000002) now",
                "sequences of an accumulation step (train.micro_batch_size x data-parallel ranks), "
                "which balance losses over a step depend on: 0 in the checkpoint, 4 now"}));
}

// Checkpoints from before contents were kept say only where data and tokenizer lay.
TEST(RunContents, AreComparedByTheSettingsOfAnOldCheckpoint) {
  Config config = small_config();
  config.run.dir = "run";
  config.data.train = {"a"};
  config.data.sequence_length = 8;
  config.train.global_batch_size = 2;
  CheckpointRecord old;
  Origins origins;
  for (const Setting& setting : settings()) {
    origins.set(setting.name, "a file");
  }
  old.configuration = resolved_yaml(config, origins);
  EXPECT_TRUE(changes_since(old, "record.json", config, small_contents()).empty());
  config.data.train = {"b"};
  EXPECT_EQ(changes_since(old, "record.json", config, small_contents()),
            std::vector<std::string>{"data.train: [\"a\"] in the checkpoint, [\"b\"] now"});
}

}  // namespace
}  // namespace switchyard
