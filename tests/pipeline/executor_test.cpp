#include "pipeline/executor.h"

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <map>
#include <set>
#include <thread>

#include <gtest/gtest.h>

#include <ATen/ATen.h>

#include "base/error.h"
#include "parallel/launch.h"
#include "parallel/turns.h"

namespace switchyard {
namespace {

MeshShape pipeline_of(int64_t ranks) {
  MeshShape shape;
  shape.world_size = ranks;
  shape.pipeline = ranks;
  return shape;
}

// Stages that note who passed: forward adds the stage's number to a list of digits, backward too.
class Digits : public StageRunner {
 public:
  explicit Digits(const PipelineShape& shape) : shape_(shape) {}

  at::Tensor new_hidden(int64_t) override { return at::full({1}, NAN, at::kDouble); }

  at::Tensor forward(int64_t micro_batch, int64_t stage, const at::Tensor& input) override {
    EXPECT_EQ(input.defined(), stage > 0);
    const double before =
        input.defined() ? input.item<double>() : static_cast<double>(1 + micro_batch);
    outputs_[{micro_batch, stage}] = 10 * before + static_cast<double>(stage);
    return stage + 1 < shape_.num_stages() ? value(micro_batch, stage) : at::Tensor();
  }

  at::Tensor backward(int64_t micro_batch, int64_t stage, const at::Tensor& gradient) override {
    EXPECT_EQ(gradient.defined(), stage + 1 < shape_.num_stages());
    const double after =
        gradient.defined() ? gradient.item<double>() : outputs_.at({micro_batch, stage});
    outputs_[{micro_batch, stage}] = 10 * after + static_cast<double>(stage);
    visited.insert({micro_batch, stage, outputs_.at({micro_batch, stage})});
    return stage > 0 ? value(micro_batch, stage) : at::Tensor();
  }

  at::Tensor input_gradient(int64_t micro_batch, int64_t stage,
                            const at::Tensor& gradient) override {
    return backward(micro_batch, stage, gradient);
  }
  void weight_gradient(int64_t micro_batch, int64_t stage) override {
    EXPECT_TRUE(outputs_.contains({micro_batch, stage}));
    ++num_weight_gradients;
  }

  std::set<std::tuple<int64_t, int64_t, double>> visited;
  int64_t num_weight_gradients = 0;

 private:
  at::Tensor value(int64_t micro_batch, int64_t stage) const {
    return at::full({1}, outputs_.at({micro_batch, stage}), at::kDouble);
  }

  PipelineShape shape_;
  std::map<std::pair<int64_t, int64_t>, double> outputs_;
};

// What backward() has at a stage when every stage is passed in order, there and back.
double expected_digits(const PipelineShape& shape, int64_t micro_batch, int64_t at_stage) {
  double digits = static_cast<double>(1 + micro_batch);
  for (int64_t stage = 0; stage < shape.num_stages(); ++stage) {
    digits = 10 * digits + static_cast<double>(stage);
  }
  for (int64_t stage = shape.num_stages() - 1; stage >= at_stage; --stage) {
    digits = 10 * digits + static_cast<double>(stage);
  }
  return digits;
}

TEST(Executor, TakesEachMicroBatchThroughAllStagesAndBack) {
  for (const PipelineShape& shape :
       {PipelineShape{1, 1, 3}, PipelineShape{2, 1, 1}, PipelineShape{2, 1, 5},
        PipelineShape{2, 2, 3}, PipelineShape{2, 3, 7}, PipelineShape{4, 1, 2},
        PipelineShape{3, 2, 8}}) {
    for (const MakeSchedule make : {one_forward_one_backward, forward_beside_backward}) {
      const Schedule schedule = make(shape);
      run_ranks(pipeline_of(shape.num_ranks), [&](Groups& groups) {
        const Group& pipeline = groups[GroupName::kPipeline];
        Digits stages(shape);
        const auto times = run_schedule(schedule, stages, pipeline);
        EXPECT_EQ(std::ssize(times), 2 * shape.stages_per_rank * shape.num_micro_batches);
        EXPECT_EQ(std::ssize(stages.visited), shape.stages_per_rank * shape.num_micro_batches);
        for (const auto& [micro_batch, stage, digits] : stages.visited) {
          EXPECT_EQ(shape.rank_of(stage), pipeline.rank());
          EXPECT_EQ(digits, expected_digits(shape, micro_batch, stage));
        }
      });
    }
  }
}

TEST(Executor, SplitsBackwardPassesWhereTheScheduleDoes) {
  const PipelineShape shape{3, 1, 5};
  run_ranks(pipeline_of(3), [&](Groups& groups) {
    Digits stages(shape);
    (void)run_schedule(zero_bubble(shape), stages, groups[GroupName::kPipeline]);
    EXPECT_EQ(stages.num_weight_gradients, 5);
    for (const auto& [micro_batch, stage, digits] : stages.visited) {
      EXPECT_EQ(digits, expected_digits(shape, micro_batch, stage));
    }
  });
}

// Of a pair the backward pass begins, the forward pass has its turn when that gives way, and both
// come to their ends.
class Givers : public StageRunner {
 public:
  at::Tensor new_hidden(int64_t) override { return {}; }
  at::Tensor forward(int64_t micro_batch, int64_t, const at::Tensor&) override {
    return pass("F", micro_batch);
  }
  at::Tensor backward(int64_t micro_batch, int64_t, const at::Tensor&) override {
    return pass("B", micro_batch);
  }
  at::Tensor input_gradient(int64_t, int64_t, const at::Tensor&) override { return {}; }
  void weight_gradient(int64_t, int64_t) override {}

  std::string text;

 private:
  at::Tensor pass(const char* kind, int64_t micro_batch) {
    text += fmt::format("{}{}( ", kind, micro_batch);
    Turns::give_way();
    text += fmt::format("){}{} ", kind, micro_batch);
    return {};
  }
};

TEST(Executor, RunsPairsInTurn) {
  const auto groups = Groups::single();
  Givers stages;
  const auto times =
      run_schedule(forward_beside_backward({1, 1, 3}), stages, (*groups)[GroupName::kPipeline]);
  EXPECT_EQ(stages.text, "F0( )F0 B0( F1( )B0 )F1 B1( F2( )B1 )F2 B2( )B2 ");
  EXPECT_EQ(times.at(1).action, (Action{ActionKind::kForward, 1, 0}));
  EXPECT_EQ(times.at(2).action, (Action{ActionKind::kBackward, 0, 0}));
  EXPECT_EQ(times.at(1).end_s, times.at(2).begin_s);
}

TEST(Executor, WritesWhatItSendsIntoTheLedger) {
  run_ranks(pipeline_of(2), [&](Groups& groups) {
    Digits stages({2, 1, 5});
    (void)run_schedule(one_forward_one_backward({2, 1, 5}), stages, groups[GroupName::kPipeline]);
    EXPECT_EQ(groups.ledger().bytes(Purpose::kPipeline), 5 * 8);
  });
}

// Stages that take the time they are given.
class Sleepers : public StageRunner {
 public:
  Sleepers(const PipelineShape& shape, const Duration& duration)
      : shape_(shape), duration_(duration) {}

  at::Tensor new_hidden(int64_t) override { return at::zeros({1}, at::kFloat); }
  at::Tensor forward(int64_t micro_batch, int64_t stage, const at::Tensor&) override {
    return sleep({ActionKind::kForward, micro_batch, stage}, stage + 1 < shape_.num_stages());
  }
  at::Tensor backward(int64_t micro_batch, int64_t stage, const at::Tensor&) override {
    return sleep({ActionKind::kBackward, micro_batch, stage}, stage > 0);
  }

  at::Tensor input_gradient(int64_t micro_batch, int64_t stage, const at::Tensor&) override {
    return sleep({ActionKind::kInputGradient, micro_batch, stage}, stage > 0);
  }
  void weight_gradient(int64_t micro_batch, int64_t stage) override {
    sleep({ActionKind::kWeightGradient, micro_batch, stage}, false);
  }

 private:
  at::Tensor sleep(const Action& action, bool has_result) const {
    std::this_thread::sleep_for(std::chrono::duration<double>(duration_(action)));
    return has_result ? at::zeros({1}, at::kFloat) : at::Tensor();
  }

  PipelineShape shape_;
  const Duration& duration_;
};

double measured_bubble(const Schedule& schedule, const Duration& duration) {
  std::vector<std::vector<TimedAction>> times(static_cast<size_t>(schedule.shape.num_ranks));
  run_ranks(pipeline_of(schedule.shape.num_ranks), [&](Groups& groups) {
    Sleepers stages(schedule.shape, duration);
    times[static_cast<size_t>(groups.rank())] =
        run_schedule(schedule, stages, groups[GroupName::kPipeline]);
  });
  return bubble_share(times);
}

void expect_bubble(const Schedule& schedule, const Duration& duration, double expected) {
  EXPECT_NEAR(measured_bubble(schedule, duration), expected, 0.05 * expected)
      << schedule.shape.stages_per_rank << " stages per rank";
}

// Other programs on the machine add idle time: these tests run where nothing else does.
class ExecutorTiming : public testing::Test {
 protected:
  void SetUp() override {
    if (std::getenv("SWITCHYARD_TIMING") == nullptr) {
      GTEST_SKIP() << "make timing runs it, on a quiet machine";
    }
  }
};

// What a schedule says of the time that ranks idle is what is measured when it runs.
TEST_F(ExecutorTiming, IdlesAsLongAsTheScheduleSays) {
  for (const int64_t stages_per_rank : {1, 2}) {
    const Schedule schedule = one_forward_one_backward({4, stages_per_rank, 8});
    const Duration duration = [&](const Action& action) {
      return (action.kind == ActionKind::kForward ? 0.1 : 0.2) /
             static_cast<double>(stages_per_rank);
    };
    const double expected = simulate(schedule, duration).bubble_share();
    EXPECT_NEAR(expected, 3.0 / static_cast<double>(8 * stages_per_rank + 3), 1e-9);
    expect_bubble(schedule, duration, expected);
  }
}

// The three thirds of a micro-batch's work take as long as each other: of the bubble of 1F1B, 3 x 3
// of them, the zero-bubble schedule leaves a third.
TEST_F(ExecutorTiming, IdlesAsLongAsTheZeroBubbleScheduleSays) {
  const Duration duration = [](const Action& action) {
    return action.kind == ActionKind::kBackward ? 0.4 : 0.2;
  };
  const Schedule plain = one_forward_one_backward({4, 1, 8});
  const Schedule schedule = zero_bubble({4, 1, 8});
  const double expected = simulate(schedule, duration).bubble_share();
  EXPECT_NEAR(simulate(plain, duration).bubble_share(), 9.0 / (3 * 8 + 9), 1e-9);
  EXPECT_NEAR(expected, 3.0 / (3 * 8 + 3), 1e-9);
  expect_bubble(schedule, duration, expected);
}

// Stages that do not take as long as each other.
TEST_F(ExecutorTiming, IdlesAsLongAsTheScheduleSaysWhereStagesDiffer) {
  const Schedule schedule = one_forward_one_backward({4, 1, 8});
  const Duration duration = [](const Action& action) {
    const double forward = 0.04 + 0.01 * static_cast<double>(action.stage);
    return action.kind == ActionKind::kForward ? forward : 2 * forward;
  };
  const double expected = simulate(schedule, duration).bubble_share();
  expect_bubble(schedule, duration, expected);
}

TEST(Executor, RefusesAScheduleOfOtherRanks) {
  const auto groups = Groups::single();
  Digits stages({1, 1, 1});
  EXPECT_THROW((void)run_schedule(one_forward_one_backward({2, 1, 1}), stages,
                                  (*groups)[GroupName::kPipeline]),
               ConfigError);
}

}  // namespace
}  // namespace switchyard
