#pragma once

#include <cstdint>

#include "config/sections.h"

namespace switchyard {

// The learning rate of optimizer step `step`, counted from 0, of `total_steps`. A pure function: a
// resumed run needs no scheduler state.
//
// Warm-up: lr * (step + 1) / warmup_steps, so that the first step moves already and step
// warmup_steps - 1 reaches lr (step 0 without a warm-up). After it
//   constant: lr
//   cosine:   min_lr + (lr - min_lr) * (1 + cos(pi * progress)) / 2
// where progress rises linearly from 0 at the last step of the warm-up to 1 at the last step of the
// run, whose rate is exactly min_lr; later steps keep it.
double learning_rate(const OptimizerConfig& optimizer, int64_t step, int64_t total_steps);

}  // namespace switchyard
