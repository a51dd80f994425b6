#pragma once

#include <cstdint>
#include <vector>

#include "nn/parameters.h"
#include "optim/buckets.h"

namespace switchyard {

// Adds every leaf's gradient to its storage's gradient and drops it; after each backward pass.
// Where gradients are sharded they are summed over ranks first (reduce_into_shards).
void absorb_gradients(Parameters& parameters);

// For sharded gradients: sums what the leaves of these storages have over ranks, adds the owned
// elements to the storages' gradients and drops the rest. Collective over the world (pipeline
// stages excepted), also for a leaf without a gradient, which counts as zeros. Deterministic.
void reduce_into_shards(const std::vector<ParameterStorage*>& storages, const Groups& groups,
                        int64_t bucket_bytes = kBucketBytes);

// Sums each piece's gradient, in place, over its gradient_group(): the ranks that hold the same
// elements and saw other tokens. The loss is already divided by the global weight, so the sum is
// the gradient; nothing is averaged. Where the optimizer is sharded a rank gets the sum of its
// owned elements only (the same bits), and the others are undefined. Where gradients are sharded
// this has been done after each backward pass, so that sums over ranks are taken before those over
// micro-batches: with several of these the last bits differ.
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
