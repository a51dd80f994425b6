#include "train/run_identity.h"

#include <gtest/gtest.h>

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
  EXPECT_TRUE(identity_changes(saved, now).empty());
}

TEST(RunIdentity, NamesEachSettingThatMakesItAnotherRun) {
  const Config saved = small_config();
  Config now = saved;
  now.optimizer.lr = 0.5;
  now.run.seed = 8;
  now.moe.top_k = 1;
  EXPECT_NE(run_fingerprint(saved), run_fingerprint(now));
  EXPECT_EQ(identity_changes(saved, now),
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
                                            "data.eval",
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

}  // namespace
}  // namespace switchyard
