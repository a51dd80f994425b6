#include "optim/schedule.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace switchyard {

double learning_rate(const OptimizerConfig& optimizer, int64_t step, int64_t total_steps) {
  const int64_t num_done = step + 1;
  const int64_t warmup = std::max<int64_t>(optimizer.warmup_steps, 1);
  if (num_done <= warmup) {
    return optimizer.lr * (static_cast<double>(num_done) / static_cast<double>(warmup));
  }
  switch (optimizer.schedule) {
    case LrSchedule::kConstant:
      return optimizer.lr;
    case LrSchedule::kCosine: {
      const double progress =
          num_done >= total_steps
              ? 1.0
              : static_cast<double>(num_done - warmup) / static_cast<double>(total_steps - warmup);
      return optimizer.min_lr +
             (optimizer.lr - optimizer.min_lr) * (1 + std::cos(std::numbers::pi * progress)) / 2;
    }
  }
  return optimizer.lr;
}

}  // namespace switchyard
