#pragma once

#include "base/sequence_table.h"
#include "ops/rope.h"

namespace switchyard {

// What one forward pass of a micro-batch needs besides its values.
struct ForwardContext {
  SequenceTable table;
  RotaryTable rotary;  // reaches at least the longest position of `table`
  // Real tokens of the whole global batch, over all ranks and accumulation steps: the denominator
  // of every auxiliary term, so that none depends on how the batch is cut.
  double num_batch_tokens = 1;
  // What departs from the plain model (router noise, capacity) acts in training only.
  bool is_training = false;
  int64_t first_token = 0;  // as in TokenBatch
  // Of the layers with a window; undefined where these rotate like the others.
  RotaryTable window_rotary = {};
};

}  // namespace switchyard
