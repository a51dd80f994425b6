#include "pipeline/schedule.h"

#include <algorithm>

#include <gtest/gtest.h>

#include "base/error.h"
#include "config/config.h"
#include "pipeline/simulate.h"
#include "pipeline/verify.h"

namespace switchyard {
namespace {

using Lines = std::vector<std::string>;

// Every pipeline of a few ranks, stages and micro-batches.
template <class Check>
void for_each_shape(const Check& check) {
  for (int64_t ranks = 1; ranks <= 6; ++ranks) {
    for (int64_t stages = 1; stages <= (ranks == 1 ? 1 : 4); ++stages) {
      for (int64_t micro_batches = 0; micro_batches <= 20; ++micro_batches) {
        check(PipelineShape{ranks, stages, micro_batches});
      }
    }
  }
}

std::string name(const PipelineShape& shape) {
  return fmt::format("{} ranks, {} stages each, {} micro-batches", shape.num_ranks,
                     shape.stages_per_rank, shape.num_micro_batches);
}

TEST(Schedule, OfZeroBubbleHasNoFaultsAndThePapersBubble) {
  for_each_shape([](const PipelineShape& shape) {
    if (shape.stages_per_rank > 1) {
      return;
    }
    const Schedule schedule = zero_bubble(shape);
    EXPECT_EQ(faults_of(schedule), Lines{}) << name(shape);
    for (const int64_t most : most_in_flight(schedule)) {
      EXPECT_EQ(most, std::min(shape.num_micro_batches, shape.num_ranks)) << name(shape);
    }
    if (shape.num_micro_batches >= shape.num_ranks) {
      const double end = simulate(schedule, [](const Action&) { return 1.0; }).end_s();
      EXPECT_EQ(end, static_cast<double>(3 * shape.num_micro_batches + shape.num_ranks - 1))
          << name(shape);
    }
  });
  EXPECT_THROW(zero_bubble({2, 2, 4}), ConfigError);
}

double one_and_two(const Action& action) {
  return action.kind == ActionKind::kForward ? 1 : 2;
}

TEST(Schedule, HasNoFaultsInAnyShape) {
  for_each_shape([](const PipelineShape& shape) {
    EXPECT_EQ(faults_of(one_forward_one_backward(shape)), Lines{}) << name(shape);
    EXPECT_EQ(faults_of(forward_only(shape)), Lines{}) << name(shape);
  });
}

TEST(Schedule, HoldsFewActivations) {
  for_each_shape([](const PipelineShape& shape) {
    const std::vector<int64_t> most = most_in_flight(one_forward_one_backward(shape));
    const int64_t all = shape.stages_per_rank * shape.num_micro_batches;
    const int64_t first_group = std::min(
        shape.num_micro_batches, shape.num_ranks + shape.num_micro_batches % shape.num_ranks);
    for (int64_t rank = 0; rank < shape.num_ranks; ++rank) {
      const int64_t after = shape.num_ranks - 1 - rank;
      const int64_t expected = shape.stages_per_rank == 1
                                   ? after + 1
                                   : 2 * after + (shape.stages_per_rank - 1) * first_group + 1;
      EXPECT_EQ(most[static_cast<size_t>(rank)], std::min(all, expected)) << name(shape);
    }
  });
}

// The arithmetic of the papers: ranks - 1 forward and backward passes of idle time, of 1 /
// stages_per_rank of a rank's layers each.
TEST(Schedule, HasTheBubbleOfItsPaper) {
  for_each_shape([](const PipelineShape& shape) {
    if (shape.num_micro_batches == 0 || shape.num_micro_batches % shape.num_ranks != 0) {
      return;
    }
    const double end = simulate(one_forward_one_backward(shape), one_and_two).end_s();
    const auto passes = static_cast<double>(shape.stages_per_rank * shape.num_micro_batches);
    EXPECT_EQ(end, 3 * (passes + static_cast<double>(shape.num_ranks - 1))) << name(shape);
  });
}

int64_t num_pairs(const Schedule& schedule, int64_t rank) {
  const auto& actions = schedule.actions[static_cast<size_t>(rank)];
  int64_t pairs = 0;
  for (size_t i = 0; i < actions.size(); ++i) {
    pairs += is_pair(actions, i) ? 1 : 0;
  }
  return pairs;
}

TEST(Schedule, OfForwardBesideBackwardHasNoFaultsInAnyShape) {
  for_each_shape([](const PipelineShape& shape) {
    EXPECT_EQ(faults_of(forward_beside_backward(shape)), Lines{}) << name(shape);
  });
}

// All but those before the first backward pass run in pairs.
TEST(Schedule, OfForwardBesideBackwardPairsPasses) {
  for_each_shape([](const PipelineShape& shape) {
    const Schedule schedule = forward_beside_backward(shape);
    EXPECT_TRUE(schedule.pairs_passes);
    const std::vector<int64_t> most = most_in_flight(schedule);
    for (int64_t rank = 0; rank < shape.num_ranks; ++rank) {
      if (shape.stages_per_rank > 1) {
        continue;
      }
      const int64_t warm_up = 2 * (shape.num_ranks - 1 - rank) + 1;
      EXPECT_GE(num_pairs(schedule, rank), std::max<int64_t>(0, shape.num_micro_batches - warm_up))
          << name(shape);
      EXPECT_EQ(most[static_cast<size_t>(rank)], std::min(shape.num_micro_batches, warm_up + 1))
          << name(shape);
    }
  });
}

// Pairs cost a pipeline no time: its passes are as many, and end when those of 1F1B do.
TEST(Schedule, OfForwardBesideBackwardHasTheBubbleOfOneForwardOneBackward) {
  for_each_shape([](const PipelineShape& shape) {
    const bool divides = shape.num_micro_batches % shape.num_ranks == 0;
    if (shape.num_micro_batches < 2 * shape.num_ranks || (shape.stages_per_rank > 1 && !divides)) {
      return;
    }
    EXPECT_EQ(simulate(forward_beside_backward(shape), one_and_two).end_s(),
              simulate(one_forward_one_backward(shape), one_and_two).end_s())
        << name(shape);
  });
}

TEST(Schedule, KeepsTheBubbleNearThatWhereMicroBatchesDoNotDivide) {
  for_each_shape([](const PipelineShape& shape) {
    if (shape.num_micro_batches <= shape.num_ranks) {
      return;
    }
    const double end = simulate(one_forward_one_backward(shape), one_and_two).end_s();
    const auto passes = static_cast<double>(shape.stages_per_rank * shape.num_micro_batches);
    EXPECT_LE(end, 3 * (passes + 2 * static_cast<double>(shape.num_ranks - 1))) << name(shape);
  });
}

TEST(Schedule, IsTheOneThatTheSettingsAskFor) {
  ParallelConfig parallel;
  EXPECT_EQ(training_schedule(parallel), &one_forward_one_backward);
  parallel.pipeline_schedule = PipelineSchedule::kZeroBubble;
  EXPECT_EQ(training_schedule(parallel), &zero_bubble);
  parallel = {};
  parallel.expert_overlap = true;
  EXPECT_EQ(training_schedule(parallel), &forward_beside_backward);
}

TEST(Schedule, RefusesAPipelineThatCannotBe) {
  EXPECT_THROW(one_forward_one_backward({1, 2, 4}), ConfigError);
  EXPECT_THROW(one_forward_one_backward({0, 1, 4}), ConfigError);
}

TEST(ScheduleFaults, NameWhatIsMissingTwiceOrOutOfOrder) {
  const Schedule good = one_forward_one_backward({2, 1, 3});
  const auto find = [](Schedule& schedule, size_t rank, const Action& action) {
    auto& actions = schedule.actions[rank];
    return std::find(actions.begin(), actions.end(), action);
  };
  Schedule missing = good;
  missing.actions[1].erase(find(missing, 1, {ActionKind::kBackward, 2, 1}));
  EXPECT_EQ(faults_of(missing), Lines{"missing: backward of micro-batch 2 in stage 1"});

  Schedule twice = good;
  twice.actions[0].push_back({ActionKind::kForward, 0, 0});
  EXPECT_EQ(faults_of(twice), Lines{"twice: forward of micro-batch 0 in stage 0"});

  Schedule strange = good;
  strange.actions[0].push_back({ActionKind::kForward, 3, 0});
  EXPECT_EQ(faults_of(strange), Lines{"rank 0 has 13 actions, 12 are its own"});

  Schedule swapped = good;
  std::iter_swap(find(swapped, 0, {ActionKind::kForward, 0, 0}),
                 find(swapped, 0, {ActionKind::kForward, 1, 0}));
  const Lines faults = faults_of(swapped);
  EXPECT_NE(
      std::find(faults.begin(), faults.end(), "out of order: forward of micro-batch 1 in stage 0"),
      faults.end());

  Schedule crossed = good;
  std::iter_swap(find(crossed, 1, {ActionKind::kReceiveHidden, 0, 1}),
                 find(crossed, 1, {ActionKind::kReceiveHidden, 1, 1}));
  EXPECT_EQ(faults_of(crossed).back(),
            "what rank 0 sends to rank 1 is not what that one receives, in this order");
}

// Each rank wants the other's result first.
TEST(ScheduleFaults, NameADeadlock) {
  Schedule schedule = one_forward_one_backward({2, 1, 3});
  auto& last = schedule.actions[1];
  const auto is_backward = [](const Action& action) {
    return action.kind == ActionKind::kBackward || action.kind == ActionKind::kSendGradient;
  };
  std::stable_partition(last.begin(), last.end(),
                        [&](const Action& action) { return !is_backward(action); });
  EXPECT_EQ(faults_of(schedule),
            (Lines{"rank 0 waits for ever: backward of micro-batch 0 in stage 0",
                   "rank 1 waits for ever: forward of micro-batch 2 in stage 1"}));
}

}  // namespace
}  // namespace switchyard
