#pragma once

#include "config/config.h"

namespace switchyard {

// Standard deviation of the projections that write into the residual stream: smaller with depth, so
// that the sum over 2 x layers of them keeps its scale (GPT-2; Megatron's scaled initialisation).
double output_init_std(const ModelConfig& model);

}  // namespace switchyard
