#pragma once

#include <optional>
#include <string>

#include "nn/parameters.h"
#include "train/train_step.h"

namespace switchyard {

// Why a step cannot be made, in words: which loss terms are not finite, whether weights were so
// before the step, and which gradients are, of which the one nearest to the output is where
// backward met it first. Before the gradients are cleared. The same on all ranks. Collective over
// the world.
std::string describe_non_finite(const Parameters& parameters, const StepOutcome& outcome);

// The first of the model's parameters, in the order of the forward pass, with a weight that is not
// finite on any rank. The same on all ranks. Collective over the world.
std::optional<std::string> first_non_finite_weight(const Parameters& parameters);

}  // namespace switchyard
