#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include <ATen/core/Tensor.h>

#include "nn/parameters.h"

namespace switchyard {

// Bytes that travel in one collective, unless one tensor alone has more.
constexpr int64_t kBucketBytes = int64_t{16} << 20;

// Flat views that one collective moves together. Under sharding every rank of the group has its
// shard_range of each of them.
using Bucket = std::vector<at::Tensor>;

// The gradient runs of `group` in these storages, out of the tensor that `tensor_of` picks from
// each storage (one with all its elements), packed into buckets in order of declaration: a run of
// at least bucket_bytes / 16 alone, smaller ones together up to bucket_bytes. Follows from the
// declarations alone, so all ranks of the group have the same buckets.
std::vector<Bucket> buckets_of(const std::vector<ParameterStorage*>& storages, GroupName group,
                               const std::function<at::Tensor(const ParameterStorage&)>& tensor_of,
                               int64_t bucket_bytes);

// All storages of a model, in order of declaration.
std::vector<ParameterStorage*> storages_of(const Parameters& parameters);

// How many elements of a bucket fall to each rank. [ranks]
std::vector<int64_t> counts_by_rank(const Bucket& bucket, int64_t num_ranks);

// The bucket's elements with those of rank 0 first, then those of rank 1. [elements], the memory of
// the bucket's one tensor where it has only one.
at::Tensor pack_by_rank(const Bucket& bucket, int64_t num_ranks);
// The inverse, into the bucket.
void unpack_by_rank(const at::Tensor& packed, Bucket& bucket, int64_t num_ranks);

// The elements of one rank alone.
at::Tensor pack_of_rank(const Bucket& bucket, int64_t num_ranks, int64_t rank);
void unpack_of_rank(const at::Tensor& packed, Bucket& bucket, int64_t num_ranks, int64_t rank);

}  // namespace switchyard
