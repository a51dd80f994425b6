#pragma once

#include "config/config.h"

namespace switchyard {

// Sizes of layers that settings may leave to others, where 0 stands for a multiple of the hidden
// size.

int64_t mamba2_heads(const Config& config);     // mamba.num_heads
int64_t mamba1_channels(const Config& config);  // mamba.inner_size
int64_t mamba1_dt_rank(const Config& config);   // mamba.dt_rank

}  // namespace switchyard
