#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "train/metrics.h"

namespace switchyard {

// What the progress line shows.
struct Progress {
  int64_t step = 0;
  int64_t total_steps = 0;     // 0: not fixed yet
  std::optional<double> loss;  // nothing when no token carried weight
  std::optional<double> tokens_per_s;
  std::optional<double> seconds_left;
  std::optional<ExpertLoad> worst_load;  // of the layer with the largest max over mean
  int64_t skipped_steps = 0;             // shown when there are any
};

// "step 120/2000 | loss 2.3412 | 12.3k tokens/s | 3m12s left | busiest expert 1.35x (layer 2)".
// At most `width` characters: what matters least is shortened or left out first. `worst_load` needs
// copies.
std::string format_progress(const Progress& progress, int64_t width);

std::string format_duration(double seconds);  // "45s", "3m12s", "2h05m", "3d04h"
std::string format_count(double count);       // "950", "12.3k", "4.56M"

// Speed of the recent past: steps and tokens over seconds, each sum fading by half in 30 seconds or
// in a tenth of the time that the run has taken so far, whichever is longer. Sums and not a mean of
// ratios, so that one slow step (the first, an evaluation, a checkpoint) weighs what it took.
class SpeedEstimate {
 public:
  // `start_s`: when the first step began, on any clock that only rises.
  explicit SpeedEstimate(double start_s) : start_s_(start_s), last_s_(start_s) {}

  void add_step(double now_s, int64_t tokens);

  std::optional<double> steps_per_s() const;
  std::optional<double> tokens_per_s() const;

 private:
  double start_s_;
  double last_s_;
  double steps_ = 0;
  double tokens_ = 0;
  double seconds_ = 0;
};

// Where progress is shown. On a terminal one line is redrawn in place; elsewhere (a file, a build
// log) whole lines come every so often.
struct ProgressScreen {
  bool is_terminal = false;
  std::function<int64_t()> width = [] { return int64_t{80}; };  // columns, asked at every redraw
  std::function<void(const std::string&)>
      redraw;  // shows the line in place of the last; "" removes it
  std::function<void(const std::string&)> add_line;  // a line that stays

  // Standard error, together with base/log.h: log lines appear above the live line.
  static ProgressScreen standard_error();
};

// The live line of a run. Speaks for the rank that has it.
class ProgressLine {
 public:
  struct Limits {
    int64_t total_steps = 0;  // 0: not fixed yet
    double time_limit_s = 0;  // of the whole run, 0: none
    double time_spent_s = 0;  // of it, by earlier starts
    int64_t log_every = 10;   // off a terminal: steps between lines
  };

  ProgressLine(ProgressScreen screen, const Limits& limits, double now_s);
  ~ProgressLine();
  ProgressLine(const ProgressLine&) = delete;
  ProgressLine& operator=(const ProgressLine&) = delete;

  void set_total_steps(int64_t total_steps) { limits_.total_steps = total_steps; }

  // After each step. An evaluation that followed it has a line of its own, but for the last one,
  // which is the run's result. Off a terminal a line comes after the first step, at each multiple
  // of log_every, after 30 seconds of silence, and at the last step.
  void update(const StepMetrics& metrics, double now_s);

  // Leaves the latest state as a line that stays. Called once, when training ends.
  void finish();

 private:
  std::optional<double> seconds_left(int64_t step, double now_s) const;
  void add_evaluation(int64_t step, const Ratio& loss) const;
  bool is_due(int64_t step, double now_s) const;

  ProgressScreen screen_;
  Limits limits_;
  SpeedEstimate speed_;
  double start_s_;
  double shown_s_;
  bool is_shown_ = false;  // the latest state
  bool has_shown_ = false;
  Progress latest_;
};

}  // namespace switchyard
