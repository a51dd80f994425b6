#pragma once

#include <vector>

#include "base/token_batch.h"
#include "config/config.h"
#include "nn/parameters.h"
#include "parallel/launch.h"

namespace switchyard {

// A decoder of two layers and width 16 with every part of the first model in it: grouped key/value
// heads, a shared expert, balance loss and z-loss.
Config small_config();

// Sequences of unequal length with random tokens, as one micro-batch, padded at the end; some
// labels are ignored. The same for the same seed.
TokenBatch random_batch(const Config& config, const std::vector<int64_t>& lengths, int64_t padding,
                        uint64_t seed);

// Gives parameters that start as zeros (biases) values that show when one is dropped, the same in
// every layout.
void fill_zero_parameters(Parameters& parameters);

// A layout to compare with one rank.
struct Layout {
  const char* name = "";
  int64_t world_size = 1;
  int64_t tensor = 1;
  int64_t expert = 1;
  int64_t expert_tensor = 1;
  bool sequence_parallel = false;

  MeshShape mesh() const;
  Config apply(Config config) const;  // with the parallel section of this layout
};

}  // namespace switchyard
