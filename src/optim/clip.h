#pragma once

#include <optional>
#include <string>

#include "nn/parameters.h"

namespace switchyard {

// The 2-norm of the whole gradient over logical parameters, each element once however many ranks
// hold it: of a piece that n ranks hold, each sums the squares of an n-th. Accumulated in fp64,
// equal on all ranks and, to rounding, in all layouts. Needs reduced gradients (reduce_gradients).
// May be infinite or NaN: the caller decides what a diverged step means. Collective over the world.
// Deterministic.
double gradient_norm(const Parameters& parameters);

// What to multiply the gradient with so that its norm does not exceed `max_norm`:
//   min(1, max_norm / (norm + 1e-6))
// as torch.nn.utils.clip_grad_norm_ does. 1 when max_norm is 0: clipping is off. Throws
// DivergedError when the norm is not finite: no factor repairs such a gradient.
double clip_coefficient(double norm, double max_norm);

// The first logical parameter of this rank whose gradient is not finite; nothing when all are, so
// that another rank holds it. For messages: reads every gradient once. Not collective.
std::optional<std::string> first_non_finite_gradient(const Parameters& parameters);

}  // namespace switchyard
