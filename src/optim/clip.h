#pragma once

#include "nn/parameters.h"

namespace switchyard {

// The 2-norm of the whole gradient over logical parameters, each element once however many ranks
// hold it: of a piece that n ranks hold, each sums the squares of an n-th. Accumulated in fp64,
// equal on all ranks and, to rounding, in all layouts. Needs reduced gradients (reduce_gradients).
// May be infinite or NaN: the caller decides what a diverged step means. A rank whose loss is not
// finite says so, and the norm becomes NaN on all ranks: they agree whether a step can be made.
// Collective over the world. Deterministic.
double gradient_norm(const Parameters& parameters, bool is_loss_finite = true);

// What to multiply the gradient with so that its norm does not exceed `max_norm`:
//   min(1, max_norm / (norm + 1e-6))
// as torch.nn.utils.clip_grad_norm_ does. 1 when max_norm is 0: clipping is off. Throws
// DivergedError when the norm is not finite: no factor repairs such a gradient.
double clip_coefficient(double norm, double max_norm);

}  // namespace switchyard
