#include "optim/gradients.h"

#include <map>
#include <optional>
#include <utility>
#include <vector>

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

namespace switchyard {
namespace {

struct GroupAndSite {
  GroupName group;
  Site site;
};

// One site per group, so that a test can remove the reductions of each kind alone.
constexpr GroupAndSite kReductions[] = {
    {GroupName::kDataContext, {"gradients.dense", Purpose::kGradient}},
    {GroupName::kDataContextTensor, {"gradients.replicated", Purpose::kGradient}},
    {GroupName::kExpertData, {"gradients.expert", Purpose::kGradient}},
};

constexpr Site kCopies{"gradients.tied", Purpose::kGradient};

// A bucket on its way, to be summed whole on every rank.
class Reduction {
 public:
  Reduction(Bucket bucket, const Group& group, const Site& site)
      : bucket_(std::move(bucket)),
        packed_(bucket_.size() == 1 ? bucket_[0] : at::cat(bucket_)),
        pending_(group.start_all_reduce(packed_, site)) {}

  void finish() {
    pending_.wait();
    if (bucket_.size() == 1) {
      return;
    }
    int64_t offset = 0;
    for (at::Tensor& gradient : bucket_) {
      gradient.copy_(packed_.narrow(0, offset, gradient.numel()));
      offset += gradient.numel();
    }
  }

 private:
  Bucket bucket_;
  at::Tensor packed_;
  PendingCollective pending_;
};

void all_reduce(std::vector<Bucket> buckets, const Group& group, const Site& site) {
  std::optional<Reduction> travelling;
  for (Bucket& bucket : buckets) {
    Reduction next(std::move(bucket), group, site);
    if (travelling) {
      travelling->finish();
    }
    travelling.emplace(std::move(next));
  }
  if (travelling) {
    travelling->finish();
  }
}

void reduce_scatter(std::vector<Bucket> buckets, const Group& group, const Site& site) {
  for (Bucket& bucket : buckets) {
    const at::Tensor sum = group.reduce_scatter_rows(pack_by_rank(bucket, group.size()),
                                                     counts_by_rank(bucket, group.size()), site);
    unpack_of_rank(sum, bucket, group.size(), group.rank());
  }
}

// Sums the gradients of the two copies of a weight that the first and the last rank of a pipeline
// share, over the tokens of each rank alone: whatever follows is the same for both.
void add_up_copies(Parameters& parameters) {
  const Group& pipeline = parameters.groups()[GroupName::kPipeline];
  for (const auto& storage : parameters.storages()) {
    const ParameterSpec& spec = storage->pieces.front().spec();
    if (spec.num_copies == 1) {
      continue;
    }
    const bool is_first = spec.copy_index == 0;
    const int64_t other = is_first ? pipeline.size() - 1 : 0;
    at::Tensor own = storage->gradient.contiguous();
    const at::Tensor received = at::empty_like(own);
    PendingCollective sending = pipeline.start_send(own, other, kCopies);
    pipeline.start_receive(received, other, kCopies).wait();
    sending.wait();
    storage->gradient = is_first ? own + received : received + own;
  }
}

// What the leaf has, in the master dtype, for all elements; the leaf forgets it.
at::Tensor take_gradient(ParameterStorage& storage) {
  const at::Tensor from = std::exchange(storage.leaf.mutable_grad(), at::Tensor());
  return from.defined() ? from.to(storage.master.scalar_type()).contiguous()
                        : at::zeros(storage.leaf.sizes(), storage.master.options());
}

void add_owned(ParameterStorage& storage, const at::Tensor& whole) {
  if (!storage.gradient.defined()) {
    storage.gradient = at::zeros({storage.num_owned()}, storage.master.options());
  }
  for (const PieceRange& range : storage.owned) {
    storage.gradient.narrow(0, range.in_list, range.size()).add_(storage.owned_of(whole, range));
  }
}

}  // namespace

void reduce_into_shards(const std::vector<ParameterStorage*>& storages, const Groups& groups,
                        int64_t bucket_bytes) {
  const at::NoGradGuard no_grad;
  std::map<const ParameterStorage*, at::Tensor> whole;
  for (ParameterStorage* storage : storages) {
    whole[storage] = take_gradient(*storage);
  }
  const auto gradient_of = [&](const ParameterStorage& storage) { return whole.at(&storage); };
  for (const auto& [name, site] : kReductions) {
    if (groups[name].size() > 1) {
      reduce_scatter(buckets_of(storages, name, gradient_of, bucket_bytes), groups[name], site);
    }
  }
  for (ParameterStorage* storage : storages) {
    add_owned(*storage, whole.at(storage));
  }
}

void absorb_gradients(Parameters& parameters) {
  if (parameters.shards_gradients()) {
    reduce_into_shards(storages_of(parameters), parameters.groups());
    return;
  }
  const at::NoGradGuard no_grad;
  for (const auto& storage : parameters.storages()) {
    storage->absorb_gradient();
  }
}

void reduce_gradients(Parameters& parameters, int64_t bucket_bytes) {
  const at::NoGradGuard no_grad;
  for (const auto& storage : parameters.storages()) {
    if (!storage->gradient.defined()) {
      storage->gradient = parameters.shards_gradients()
                              ? at::zeros({storage->num_owned()}, storage->master.options())
                              : at::zeros(storage->leaf.sizes(), storage->master.options());
    }
  }
  add_up_copies(parameters);
  if (parameters.shards_gradients()) {
    return;  // reduced after each backward pass
  }
  const auto gradient_of = [](const ParameterStorage& storage) { return storage.gradient; };
  for (const auto& [name, site] : kReductions) {
    const Group& group = parameters.groups()[name];
    if (group.size() == 1) {
      continue;
    }
    std::vector<Bucket> buckets =
        buckets_of(storages_of(parameters), name, gradient_of, bucket_bytes);
    if (parameters.is_sharded()) {
      reduce_scatter(std::move(buckets), group, site);
    } else {
      all_reduce(std::move(buckets), group, site);
    }
  }
}

void clear_gradients(Parameters& parameters) {
  for (const auto& storage : parameters.storages()) {
    storage->gradient.reset();
  }
}

}  // namespace switchyard
