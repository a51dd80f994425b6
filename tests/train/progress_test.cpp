#include "train/progress.h"

#include <cmath>

#include <gtest/gtest.h>

namespace switchyard {
namespace {

Progress example() {
  Progress progress;
  progress.step = 120;
  progress.total_steps = 2000;
  progress.loss = 2.3412;
  progress.tokens_per_s = 12345;
  progress.seconds_left = 192;
  progress.worst_load = ExpertLoad::from_counts(2, {27, 13});
  return progress;
}

TEST(FormatProgress, ShowsEverythingWhereThereIsRoom) {
  EXPECT_EQ(
      format_progress(example(), 100),
      "step 120/2000 | loss 2.3412 | 12.3k tokens/s | 3m12s left | busiest expert 1.35x (layer 2)");
}

TEST(FormatProgress, LeavesOutWhatMattersLeast) {
  const std::string widest = format_progress(example(), 100);
  EXPECT_EQ(format_progress(example(), static_cast<int64_t>(widest.size())), widest);
  EXPECT_EQ(format_progress(example(), static_cast<int64_t>(widest.size()) - 1),
            "step 120/2000 | loss 2.3412 | 12.3k tokens/s | 3m12s left | expert max 1.35x");
  EXPECT_EQ(format_progress(example(), 60),
            "step 120/2000 | loss 2.3412 | 12.3k tokens/s | 3m12s left");
  EXPECT_EQ(format_progress(example(), 45), "step 120/2000 | loss 2.3412 | 3m12s left");
  EXPECT_EQ(format_progress(example(), 30), "step 120/2000 | loss 2.3412");
  EXPECT_EQ(format_progress(example(), 20), "step 120/2000");
  EXPECT_EQ(format_progress(example(), 6), "step 1");
  EXPECT_EQ(format_progress(example(), 0), "");
  EXPECT_EQ(format_progress(example(), -1), "");
  for (int64_t width = 0; width < 100; ++width) {
    EXPECT_LE(static_cast<int64_t>(format_progress(example(), width).size()), width);
  }
}

TEST(FormatProgress, CountsSkippedSteps) {
  Progress progress = example();
  progress.skipped_steps = 3;
  EXPECT_EQ(format_progress(progress, 70),
            "step 120/2000 | loss 2.3412 | 3 skipped | 12.3k tokens/s | 3m12s left");
  EXPECT_EQ(format_progress(progress, 42), "step 120/2000 | loss 2.3412 | 3 skipped");
}

TEST(FormatProgress, SaysWhatItDoesNotKnow) {
  Progress progress;
  progress.step = 1;
  EXPECT_EQ(format_progress(progress, 80), "step 1 | loss none");
  progress.loss = std::nan("");
  EXPECT_EQ(format_progress(progress, 80), "step 1 | loss nan");
}

TEST(FormatDuration, UsesTwoUnits) {
  EXPECT_EQ(format_duration(0.4), "0s");
  EXPECT_EQ(format_duration(59.4), "59s");
  EXPECT_EQ(format_duration(59.6), "1m00s");
  EXPECT_EQ(format_duration(192), "3m12s");
  EXPECT_EQ(format_duration(7500), "2h05m");
  EXPECT_EQ(format_duration(3 * 86400 + 4 * 3600 + 59), "3d04h");
  EXPECT_EQ(format_duration(std::nan("")), "unknown");
  EXPECT_EQ(format_duration(-1), "unknown");
  EXPECT_EQ(format_duration(1e300), "unknown");
}

TEST(FormatCount, KeepsThreeDigits) {
  EXPECT_EQ(format_count(0), "0");
  EXPECT_EQ(format_count(999.4), "999");
  EXPECT_EQ(format_count(999.6), "1k");
  EXPECT_EQ(format_count(12345), "12.3k");
  EXPECT_EQ(format_count(999'600), "1M");
  EXPECT_EQ(format_count(4'560'000), "4.56M");
}

TEST(SpeedEstimate, IsStepsOverSeconds) {
  SpeedEstimate speed(100);
  EXPECT_EQ(speed.steps_per_s(), std::nullopt);
  speed.add_step(102, 500);
  EXPECT_DOUBLE_EQ(*speed.steps_per_s(), 0.5);
  EXPECT_DOUBLE_EQ(*speed.tokens_per_s(), 250);
  speed.add_step(104, 500);
  EXPECT_DOUBLE_EQ(*speed.steps_per_s(), 0.5);
}

// A step of 30 s halves what came before it: (1 / 2 + 1) steps in (1 / 2 + 30) seconds.
TEST(SpeedEstimate, FadesByHalfInThirtySeconds) {
  SpeedEstimate speed(0);
  speed.add_step(1, 1);
  speed.add_step(31, 1);
  EXPECT_DOUBLE_EQ(*speed.steps_per_s(), 1.5 / 30.5);
}

// After a first step of 20 s, steps of 0.1 s: within two minutes the estimate is within a tenth.
TEST(SpeedEstimate, ForgetsASlowStart) {
  SpeedEstimate speed(0);
  double now = 20;
  speed.add_step(now, 1);
  for (int step = 0; step < 1200; ++step) {
    now += 0.1;
    speed.add_step(now, 1);
  }
  EXPECT_NEAR(*speed.steps_per_s(), 10, 1);
}

// Steps of 1 s with a pause of 9 s before every tenth: the pauses count.
TEST(SpeedEstimate, CountsRegularPauses) {
  SpeedEstimate speed(0);
  double now = 0;
  for (int step = 1; step <= 1000; ++step) {
    now += step % 10 == 0 ? 10 : 1;
    speed.add_step(now, 1);
  }
  EXPECT_NEAR(*speed.steps_per_s(), 10.0 / 19, 0.02);
}

// What a screen was told, in order: "~" marks a redraw.
struct Shown {
  std::vector<std::string> lines;
  ProgressScreen screen(bool is_terminal, int64_t width = 81) {
    ProgressScreen made;
    made.is_terminal = is_terminal;
    made.width = [width] { return width; };
    made.redraw = [this](const std::string& text) { lines.push_back("~" + text); };
    made.add_line = [this](const std::string& text) { lines.push_back(text); };
    return made;
  }
};

StepMetrics metrics_of(int64_t step) {
  StepMetrics metrics;
  metrics.step = step;
  metrics.loss = {static_cast<double>(step), 1};
  metrics.tokens = 100;
  return metrics;
}

TEST(ProgressLine, WritesWholeLinesOffATerminal) {
  Shown shown;
  {
    ProgressLine line(shown.screen(false), {.total_steps = 12, .log_every = 5}, 0);
    for (int64_t step = 1; step <= 12; ++step) {
      line.update(metrics_of(step), static_cast<double>(step));
    }
    line.finish();
  }
  EXPECT_EQ(shown.lines, (std::vector<std::string>{
                             "step 1/12 | loss 1.0000 | 100 tokens/s | 11s left",
                             "step 5/12 | loss 5.0000 | 100 tokens/s | 7s left",
                             "step 10/12 | loss 10.0000 | 100 tokens/s | 2s left",
                             "step 12/12 | loss 12.0000 | 100 tokens/s | 0s left",
                         }));
}

TEST(ProgressLine, BreaksALongSilenceOffATerminal) {
  Shown shown;
  ProgressLine line(shown.screen(false), {.total_steps = 100, .log_every = 50}, 0);
  for (int64_t step = 1; step <= 5; ++step) {
    line.update(metrics_of(step), 20.0 * static_cast<double>(step));
  }
  ASSERT_EQ(shown.lines.size(), 3);  // steps 1, 3 and 5
  EXPECT_EQ(shown.lines[1].substr(0, 10), "step 3/100");
  EXPECT_EQ(shown.lines[2].substr(0, 10), "step 5/100");
}

TEST(ProgressLine, RedrawsInPlaceOnATerminalAtMostTenTimesASecond) {
  Shown shown;
  {
    ProgressLine line(shown.screen(true), {.total_steps = 4}, 0);
    line.update(metrics_of(1), 1);
    line.update(metrics_of(2), 1.05);
    line.update(metrics_of(3), 1.15);
    line.finish();
  }
  ASSERT_EQ(shown.lines.size(), 5);
  EXPECT_EQ(shown.lines[0].substr(0, 9), "~step 1/4");
  EXPECT_EQ(shown.lines[1].substr(0, 9), "~step 3/4");
  EXPECT_EQ(shown.lines[2], "~");
  EXPECT_EQ(shown.lines[3].substr(0, 8), "step 3/4");
  EXPECT_EQ(shown.lines[4], "~");
}

TEST(ProgressLine, LeavesTheLastColumnFree) {
  Shown shown;
  ProgressLine line(shown.screen(true, 10), {.total_steps = 12}, 0);
  line.update(metrics_of(1), 1);
  EXPECT_EQ(shown.lines[0], "~step 1/12");
  Shown narrower;
  ProgressLine narrow(narrower.screen(true, 9), {.total_steps = 12}, 0);
  narrow.update(metrics_of(1), 1);
  EXPECT_EQ(narrower.lines[0], "~step 1/1");
}

TEST(ProgressLine, RemovesItselfWhenAnErrorEndsTheRun) {
  Shown shown;
  { const ProgressLine line(shown.screen(true), {}, 0); }
  EXPECT_EQ(shown.lines, std::vector<std::string>{"~"});
}

TEST(ProgressLine, CountsDownToATimeLimit) {
  Shown shown;
  ProgressLine line(shown.screen(false),
                    {.total_steps = 0, .time_limit_s = 180, .time_spent_s = 60, .log_every = 1}, 0);
  line.update(metrics_of(1), 10);
  EXPECT_EQ(shown.lines[0], "step 1 | loss 1.0000 | 10 tokens/s | 1m50s left");
  line.set_total_steps(4);  // at 10 s each done before the limit
  line.update(metrics_of(2), 20);
  EXPECT_EQ(shown.lines[1], "step 2/4 | loss 2.0000 | 10 tokens/s | 20s left");
  line.set_total_steps(1000);
  line.update(metrics_of(3), 30);
  EXPECT_EQ(shown.lines[2], "step 3/1000 | loss 3.0000 | 10 tokens/s | 1m30s left");
}

TEST(ProgressLine, GivesEachEvaluationALineButTheLast) {
  Shown shown;
  ProgressLine line(shown.screen(false), {.total_steps = 30, .log_every = 100}, 0);
  for (const int64_t step : {1, 20, 30}) {
    StepMetrics metrics = metrics_of(step);
    metrics.eval_loss = Ratio{30, 12};
    line.update(metrics, static_cast<double>(step));
  }
  ASSERT_EQ(shown.lines.size(), 4);
  EXPECT_EQ(shown.lines[0], "evaluation after step 1: loss 2.5000 over 12 tokens");
  EXPECT_EQ(shown.lines[1].substr(0, 9), "step 1/30");
  EXPECT_EQ(shown.lines[2], "evaluation after step 20: loss 2.5000 over 12 tokens");
  EXPECT_EQ(shown.lines[3].substr(0, 10), "step 30/30");
}

TEST(ProgressLine, ShowsTheWorstLayer) {
  Shown shown;
  ProgressLine line(shown.screen(false), {.total_steps = 1}, 0);
  StepMetrics metrics = metrics_of(1);
  metrics.expert_load = {ExpertLoad::from_counts(0, {0, 0}), ExpertLoad::from_counts(1, {3, 1}),
                         ExpertLoad::from_counts(2, {2, 2})};
  line.update(metrics, 1);
  EXPECT_EQ(shown.lines[0],
            "step 1/1 | loss 1.0000 | 100 tokens/s | 0s left | busiest expert 1.50x (layer 1)");
}

}  // namespace
}  // namespace switchyard
