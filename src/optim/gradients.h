#pragma once

#include <cstdint>

#include "nn/parameters.h"
#include "optim/buckets.h"

namespace switchyard {

// Adds every leaf's gradient to its storage's gradient and drops it; after each backward pass.
void absorb_gradients(Parameters& parameters);

// Sums each piece's gradient, in place, over its gradient_group(): the ranks that hold the same
// elements and saw other tokens. The loss is already divided by the global weight, so the sum is
// the gradient; nothing is averaged. Where the optimizer is sharded a rank gets the sum of its
// owned elements only (the same bits), and the others are undefined.
//
// A storage that no token of this rank reached counts as zeros and still takes part: which
// collectives run, and over which bytes, follows from the declarations alone. Afterwards every
// gradient is defined.
//
// Small gradients are packed into buckets (buckets_of), one collective each; the next bucket is
// packed while one travels. A group of one rank copies nothing. (8 million fp32 elements over 2
// ranks on 2 cores: in tensors of 1000 740 ms unpacked, 74 packed; of 64,000 250 and 27; of a
// million 30 and 32.)
//
// A weight that two pipeline stages hold gets the sum of both gradients, with the same bits on
// both.
//
// Collective over the world. Deterministic: the order of every
// sum is fixed by the declarations.
void reduce_gradients(Parameters& parameters, int64_t bucket_bytes = kBucketBytes);

// Forgets all gradients; after the optimizer step.
void clear_gradients(Parameters& parameters);

}  // namespace switchyard
