#pragma once

#include <cstdint>
#include <optional>

namespace switchyard {

// How many steps a run has when it is given minutes instead: the speed of its first steps fixes the
// number once, and the schedule is a function of steps from then on.
class StepBudget {
 public:
  // `minutes` of training in all.
  explicit StepBudget(double minutes) : limit_s_(minutes * 60) {}

  // After a step of `step_s` seconds. Returns the number of steps of the whole run as soon as it
  // can be told: after a thirtieth of the time, and three steps at least. The first step, which
  // warms up, counts as time but not as speed.
  std::optional<int64_t> add_step(double step_s);

 private:
  double limit_s_;
  double elapsed_s_ = 0;
  double measured_s_ = 0;  // without the first step
  int64_t num_steps_ = 0;
};

}  // namespace switchyard
