// Dispatch and combine of one micro-batch under the compute of another: the same bits as without,
// and on a slow link most of their time hidden.
#include <chrono>
#include <cstdlib>
#include <mutex>

#include <gtest/gtest.h>

#include <ATen/ATen.h>

#include "model/language_model.h"
#include "optim/gradients.h"
#include "pipeline/schedule.h"
#include "selfcheck/layout_run.h"
#include "selfcheck/logical_tensors.h"
#include "support/small_model.h"
#include "train/train_step.h"

namespace switchyard {
namespace {

struct Case {
  Layout layout;
  DispatcherKind dispatcher = DispatcherKind::kAllToAll;
  Recompute recompute = Recompute::kNone;
  int64_t num_micro_batches = 8;
};

std::vector<Case> cases() {
  const Layout ep2 = {.name = "ep2", .world_size = 2, .expert = 2};
  return {
      {.layout = ep2},
      {.layout = ep2, .dispatcher = DispatcherKind::kAllGather},
      {.layout = ep2, .recompute = Recompute::kFull},
      {.layout = ep2, .num_micro_batches = 2},
      {.layout = {.name = "ep2_etp2", .world_size = 4, .expert = 2, .expert_tensor = 2}},
      {.layout = {.name = "tp2_sp_ep2",
                  .world_size = 2,
                  .tensor = 2,
                  .expert = 2,
                  .sequence_parallel = true}},
      {.layout = {.name = "cp2_ep2", .world_size = 2, .expert = 2, .context = 2}},
      {.layout = {.name = "pp2_ep2", .world_size = 4, .expert = 2, .pipeline = 2}},
      {.layout = {.name = "pp2_vpp2_ep2",
                  .world_size = 4,
                  .expert = 2,
                  .pipeline = 2,
                  .virtual_pipeline = 2}},
  };
}

void run(const Case& one, bool overlaps, LogicalTensors& result) {
  Config config = one.layout.apply(small_config());
  config.model.num_layers = 4;
  config.moe.dispatcher = one.dispatcher;
  config.train.recompute = one.recompute;
  config.parallel.expert_overlap = overlaps;
  run_layout({.config = config,
              .num_ranks = one.layout.world_size,
              .num_micro_batches = one.num_micro_batches},
             result);
}

TEST(Overlap, LeavesEveryBit) {
  for (const Case& one : cases()) {
    LogicalTensors plain;
    LogicalTensors overlapped;
    run(one, false, plain);
    run(one, true, overlapped);
    EXPECT_TRUE(overlapped.problems().empty()) << one.layout.name;
    for (const auto& [name, values] : plain.values()) {
      EXPECT_TRUE(overlapped.values().at(name).equal(values)) << one.layout.name << ": " << name;
    }
  }
}

// Two ranks, each with half of the experts, and a model in which every part of a layer computes for
// longer than tokens travel.
Config slow_link_config() {
  Config config = small_config();
  config.model.num_layers = 4;
  config.model.hidden_size = 256;
  config.model.head_dim = 64;
  config.model.ffn_hidden_size = 512;
  config.model.init_std = 0.02;
  config.model.vocab_size = 64;
  config.moe.num_experts = 8;
  config.moe.ffn_hidden_size = 512;
  config.moe.shared_expert_ffn_hidden_size = 0;  // which hides combine by itself
  config.train.precision = Precision::kFp32;
  config.parallel.expert_size = 2;
  config.parallel.slow_link = {"ep"};
  config.parallel.link_latency_us = 500;
  config.parallel.link_gb_per_s = 0.15;
  return config;
}

struct SlowRun {
  double seconds = 0;
  double waited = 0;  // for dispatch and combine, of all ranks
  double hidden = 0;
};

SlowRun run_slowly(const Config& config) {
  SlowRun result;
  std::mutex mutex;
  run_ranks(
      mesh_shape(config.parallel, 2),
      [&](Groups& groups) {
        Parameters parameters(groups, Dtypes::of(config.train.precision), 3);
        LanguageModel model(parameters, config);
        std::vector<TokenBatch> batches;
        for (uint64_t i = 0; i < 16; ++i) {
          batches.push_back(
              random_batch(config, {512}, 0, 100 * static_cast<uint64_t>(groups.rank()) + i));
        }
        const MakeSchedule schedule = training_schedule(config.parallel);
        compute_gradients(model, parameters, {batches[0]}, schedule);  // warm
        clear_gradients(parameters);
        Ledger& ledger = groups.ledger();
        ledger.clear();
        const auto start = std::chrono::steady_clock::now();
        compute_gradients(model, parameters, batches, schedule);
        const std::lock_guard lock(mutex);
        result.seconds = std::max(
            result.seconds,
            std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
        for (const Purpose purpose : {Purpose::kDispatch, Purpose::kCombine}) {
          result.waited += ledger.seconds(purpose);
          result.hidden += ledger.hidden_seconds(purpose);
        }
      },
      std::chrono::seconds(60), /*verify_calls=*/false, slow_groups(config.parallel));
  return result;
}

TEST(OverlapTiming, HidesMostOfDispatchAndCombine) {
  if (std::getenv("SWITCHYARD_TIMING") == nullptr) {
    GTEST_SKIP() << "make timing runs it, on a quiet machine";
  }
  Config config = slow_link_config();
  const SlowRun plain = run_slowly(config);
  config.parallel.expert_overlap = true;
  const SlowRun overlapped = run_slowly(config);
  config.parallel.expert_overlap = false;
  config.parallel.slow_link.clear();
  const SlowRun fast = run_slowly(config);
  fmt::print(
      "not overlapped {:.2f} s, of which {:.2f} s of waiting per rank; overlapped {:.2f} s, "
      "{:.2f} s; fast link {:.2f} s, {:.2f} s\n",
      plain.seconds, plain.waited / 2, overlapped.seconds, overlapped.waited / 2, fast.seconds,
      fast.waited / 2);
  EXPECT_EQ(plain.hidden, 0);
  EXPECT_GE(overlapped.hidden / (overlapped.hidden + overlapped.waited), 0.8);
  EXPECT_LE(overlapped.waited, 0.2 * plain.waited);
}

}  // namespace
}  // namespace switchyard
