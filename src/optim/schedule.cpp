#include "optim/schedule.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace switchyard {
namespace {

// How far from `begin` to `end`, 0 to 1.
double progress(int64_t at, int64_t begin, int64_t end) {
  return at >= end ? 1.0 : static_cast<double>(at - begin) / static_cast<double>(end - begin);
}

// What is left of the way from the largest rate to the smallest: 1 at 0, 0 at 1.
double remaining(DecayShape shape, double progress) {
  switch (shape) {
    case DecayShape::kLinear:
      return 1 - progress;
    case DecayShape::kCosine:
      return (1 + std::cos(std::numbers::pi * progress)) / 2;
    case DecayShape::kExponential:
      return 2 * std::pow(0.5, progress) - 1;
    case DecayShape::kMinusSqrt:
      return 1 - std::sqrt(progress);
  }
  return 1 - progress;
}

double falling(const OptimizerConfig& optimizer, DecayShape shape, double progress) {
  return optimizer.min_lr + (optimizer.lr - optimizer.min_lr) * remaining(shape, progress);
}

int64_t decay_start(const OptimizerConfig& optimizer, int64_t warmup, int64_t total_steps) {
  const int64_t asked =
      optimizer.decay_steps > 0 ? optimizer.decay_steps : std::max<int64_t>(total_steps / 10, 1);
  return total_steps - std::min(asked, total_steps - warmup);
}

}  // namespace

double learning_rate(const OptimizerConfig& optimizer, int64_t step, int64_t total_steps) {
  const int64_t num_done = step + 1;
  const int64_t warmup = std::max<int64_t>(optimizer.warmup_steps, 1);
  if (num_done <= warmup) {
    const double start = optimizer.warmup_steps > 0 ? optimizer.initial_lr : 0.0;
    return start +
           (optimizer.lr - start) * (static_cast<double>(num_done) / static_cast<double>(warmup));
  }
  switch (optimizer.schedule) {
    case LrSchedule::kConstant:
      return optimizer.lr;
    case LrSchedule::kLinear:
      return falling(optimizer, DecayShape::kLinear, progress(num_done, warmup, total_steps));
    case LrSchedule::kCosine:
      return falling(optimizer, DecayShape::kCosine, progress(num_done, warmup, total_steps));
    case LrSchedule::kInverseSqrt:
      return std::max(optimizer.min_lr, optimizer.lr * std::sqrt(static_cast<double>(warmup) /
                                                                 static_cast<double>(num_done)));
    case LrSchedule::kWsd: {
      const int64_t start = decay_start(optimizer, warmup, total_steps);
      return num_done <= start ? optimizer.lr
                               : falling(optimizer, optimizer.decay_shape,
                                         progress(num_done, start, total_steps));
    }
  }
  return optimizer.lr;
}

double weight_decay(const OptimizerConfig& optimizer, int64_t step, int64_t total_steps) {
  const double done = progress(step + 1, 0, total_steps);
  const double change = optimizer.final_weight_decay - optimizer.weight_decay;
  switch (optimizer.weight_decay_schedule) {
    case WeightDecaySchedule::kConstant:
      return optimizer.weight_decay;
    case WeightDecaySchedule::kLinear:
      return optimizer.weight_decay + change * done;
    case WeightDecaySchedule::kCosine:
      return optimizer.weight_decay + change * (1 - std::cos(std::numbers::pi * done)) / 2;
  }
  return optimizer.weight_decay;
}

}  // namespace switchyard
