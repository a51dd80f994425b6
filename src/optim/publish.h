#pragma once

#include <cstdint>

#include "nn/parameters.h"
#include "optim/buckets.h"

namespace switchyard {

// Brings the master values that were written, by an optimizer step or a load, to where the model
// reads them: into the leaves, where those are other tensors; and, where the optimizer is sharded,
// each rank's owned elements to the other ranks of their gradient group, in the compute dtype.
// Collective over the world (pipeline stages excepted) where the optimizer is sharded, else not.
void publish_parameters(Parameters& parameters, int64_t bucket_bytes = kBucketBytes);

}  // namespace switchyard
