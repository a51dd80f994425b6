#include "optim/buckets.h"

#include <algorithm>
#include <utility>

#include <ATen/ATen.h>

namespace switchyard {
namespace {

constexpr int64_t kAloneShare = 16;

int64_t bytes_of(const at::Tensor& tensor) {
  return static_cast<int64_t>(tensor.nbytes());
}

std::vector<Bucket> fill_buckets(const std::vector<at::Tensor>& runs, int64_t bucket_bytes) {
  std::vector<Bucket> buckets;
  Bucket open;
  int64_t open_bytes = 0;
  for (const at::Tensor& run : runs) {
    if (bytes_of(run) >= bucket_bytes / kAloneShare) {
      buckets.push_back({run});
      continue;
    }
    const bool is_of_another_dtype =
        !open.empty() && open.front().scalar_type() != run.scalar_type();
    if (is_of_another_dtype || open_bytes + bytes_of(run) > bucket_bytes) {
      buckets.push_back(std::exchange(open, {}));
      open_bytes = 0;
    }
    open.push_back(run);
    open_bytes += bytes_of(run);
  }
  if (!open.empty()) {
    buckets.push_back(std::move(open));
  }
  return buckets;
}

at::Tensor shard_of(const at::Tensor& flat, int64_t num_ranks, int64_t rank) {
  const ShardRange range = shard_range(flat.numel(), num_ranks, rank);
  return flat.slice(0, range.begin, range.end);
}

// Copies the next elements of `packed` into the rank's shards; returns where they end.
int64_t unpack_rank_at(int64_t offset, const at::Tensor& packed, Bucket& bucket, int64_t num_ranks,
                       int64_t rank) {
  for (const at::Tensor& tensor : bucket) {
    const at::Tensor shard = shard_of(tensor, num_ranks, rank);
    shard.copy_(packed.narrow(0, offset, shard.numel()));
    offset += shard.numel();
  }
  return offset;
}

}  // namespace

std::vector<ParameterStorage*> storages_of(const Parameters& parameters) {
  std::vector<ParameterStorage*> storages;
  for (const auto& storage : parameters.storages()) {
    storages.push_back(storage.get());
  }
  return storages;
}

std::vector<Bucket> buckets_of(const std::vector<ParameterStorage*>& storages, GroupName group,
                               const std::function<at::Tensor(const ParameterStorage&)>& tensor_of,
                               int64_t bucket_bytes) {
  std::vector<at::Tensor> runs;
  for (const ParameterStorage* storage : storages) {
    for (const GradientRun& run : storage->gradient_runs) {
      if (run.group == group) {
        const at::Tensor flat = tensor_of(*storage).view({-1});
        runs.push_back(flat.slice(0, run.elements.begin, run.elements.end));
      }
    }
  }
  // Of one dtype each: leaves that stay wide are among others in bf16.
  std::stable_sort(runs.begin(), runs.end(), [](const at::Tensor& a, const at::Tensor& b) {
    return a.scalar_type() < b.scalar_type();
  });
  return fill_buckets(runs, bucket_bytes);
}

std::vector<int64_t> counts_by_rank(const Bucket& bucket, int64_t num_ranks) {
  std::vector<int64_t> counts(static_cast<size_t>(num_ranks), 0);
  for (const at::Tensor& tensor : bucket) {
    for (int64_t rank = 0; rank < num_ranks; ++rank) {
      counts[static_cast<size_t>(rank)] += shard_range(tensor.numel(), num_ranks, rank).size();
    }
  }
  return counts;
}

at::Tensor pack_by_rank(const Bucket& bucket, int64_t num_ranks) {
  if (bucket.size() == 1) {
    return bucket[0];
  }
  std::vector<at::Tensor> shards;
  for (int64_t rank = 0; rank < num_ranks; ++rank) {
    for (const at::Tensor& tensor : bucket) {
      shards.push_back(shard_of(tensor, num_ranks, rank));
    }
  }
  return at::cat(shards);
}

void unpack_by_rank(const at::Tensor& packed, Bucket& bucket, int64_t num_ranks) {
  int64_t offset = 0;
  for (int64_t rank = 0; rank < num_ranks; ++rank) {
    offset = unpack_rank_at(offset, packed, bucket, num_ranks, rank);
  }
}

at::Tensor pack_of_rank(const Bucket& bucket, int64_t num_ranks, int64_t rank) {
  std::vector<at::Tensor> shards;
  for (const at::Tensor& tensor : bucket) {
    shards.push_back(shard_of(tensor, num_ranks, rank));
  }
  return shards.size() == 1 ? shards[0] : at::cat(shards);
}

void unpack_of_rank(const at::Tensor& packed, Bucket& bucket, int64_t num_ranks, int64_t rank) {
  unpack_rank_at(0, packed, bucket, num_ranks, rank);
}

}  // namespace switchyard
