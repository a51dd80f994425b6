#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "pipeline/schedule.h"

namespace switchyard {

struct TimedAction {
  Action action;
  double begin_s = 0;
  double end_s = 0;
};

// A schedule as it runs on ranks that compute as long as they are told and send in no time.
struct SimulatedRun {
  std::vector<std::vector<TimedAction>> computations;  // [ranks], in order
  // Of each rank the first action that waits for ever; empty: the schedule comes to its end.
  std::vector<std::string> stuck;

  double end_s() const;  // of the last computation
  // The share of the ranks' time, from the start to end_s(), in which they do not compute.
  double bubble_share() const;
};

using Duration = std::function<double(const Action&)>;  // in seconds

SimulatedRun simulate(const Schedule& schedule, const Duration& duration);

// The same share out of what was measured: [ranks], with one clock.
double bubble_share(const std::vector<std::vector<TimedAction>>& computations);

}  // namespace switchyard
