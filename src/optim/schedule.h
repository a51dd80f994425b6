#pragma once

#include <cstdint>

#include "config/sections.h"

namespace switchyard {

// What an optimizer step takes from the schedules is a pure function of the step: a resumed run
// needs no scheduler state. Below, t = step + 1 counts the steps done once this one is made, w is
// warmup_steps (1 where that is 0), n is total_steps.

// The learning rate of optimizer step `step`, counted from 0, of `total_steps`.
//
//   t <= w:        initial_lr + (lr - initial_lr) * t / warmup_steps; without a warm-up, lr
//   constant:      lr
//   linear:        min_lr + (lr - min_lr) * (1 - p)                    p = (t - w) / (n - w)
//   cosine:        min_lr + (lr - min_lr) * (1 + cos(pi * p)) / 2
//   inverse_sqrt:  max(min_lr, lr * sqrt(w / t))
//   wsd:           lr until t = n - d, then min_lr + (lr - min_lr) * shape((t - (n - d)) / d)
//
// with d = decay_steps, or a tenth of the run where that is 0, at most n - w, and decay_shape
//   linear 1 - r, cosine (1 + cos(pi * r)) / 2, exponential 2 * 0.5^r - 1, minus_sqrt 1 - sqrt(r).
//
// The last step of linear, cosine and wsd has exactly min_lr, and so have steps after it. Matches
// megatron-core 0.16.1 optimizer_param_scheduler.py at num_steps = t wherever there is a warm-up,
// but that its inverse_sqrt drops to min_lr after the last step. `total_steps` of kNoLimit: a run
// whose length is not known yet.
double learning_rate(const OptimizerConfig& optimizer, int64_t step, int64_t total_steps);

// The weight decay of that step:
//   constant: weight_decay
//   linear:   weight_decay + (final_weight_decay - weight_decay) * t / n
//   cosine:   the same with (1 - cos(pi * t / n)) / 2 for t / n
// final_weight_decay from the last step on. Matches get_wd of the same file.
double weight_decay(const OptimizerConfig& optimizer, int64_t step, int64_t total_steps);

}  // namespace switchyard
