#include "config/mixer_sizes.h"

namespace switchyard {

int64_t mamba2_heads(const Config& config) {
  return config.mamba.num_heads > 0 ? config.mamba.num_heads
                                    : 2 * config.model.hidden_size / config.mamba.head_dim;
}

int64_t mamba1_channels(const Config& config) {
  return config.mamba.inner_size > 0 ? config.mamba.inner_size : 2 * config.model.hidden_size;
}

int64_t mamba1_dt_rank(const Config& config) {
  return config.mamba.dt_rank > 0 ? config.mamba.dt_rank : (config.model.hidden_size + 15) / 16;
}

}  // namespace switchyard
