#include "train/step_budget.h"

#include <algorithm>
#include <cmath>

namespace switchyard {

std::optional<int64_t> StepBudget::add_step(double step_s) {
  constexpr double kShareToMeasure = 1.0 / 30;
  constexpr int64_t kStepsToMeasure = 3;
  elapsed_s_ += step_s;
  measured_s_ += num_steps_ > 0 ? step_s : 0;
  ++num_steps_;
  if (num_steps_ < kStepsToMeasure || elapsed_s_ < kShareToMeasure * limit_s_) {
    return std::nullopt;
  }
  const double mean_s = measured_s_ / static_cast<double>(num_steps_ - 1);
  const double rest = std::max(0.0, (limit_s_ - elapsed_s_) / mean_s);
  return num_steps_ + static_cast<int64_t>(std::llround(rest));
}

}  // namespace switchyard
