#include "optim/gradients.h"

#include <functional>
#include <optional>
#include <utility>
#include <vector>

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include "optim/piece_runs.h"

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

constexpr int64_t kInPlaceShare = 16;

using Bucket = std::vector<at::Tensor>;  // flat views into gradients

int64_t bytes_of(const at::Tensor& tensor) {
  return static_cast<int64_t>(tensor.nbytes());
}

// The gradients that `group` sums, as flat views.
std::vector<at::Tensor> gradients_of(Parameters& parameters, GroupName group) {
  std::vector<at::Tensor> found;
  for (const auto& storage : parameters.storages()) {
    for (const auto& run : piece_runs(*storage, std::mem_fn(&Parameter::gradient_group))) {
      if (run.property == group) {
        found.push_back(run.of(storage->gradient));
      }
    }
  }
  return found;
}

std::vector<Bucket> fill_buckets(const std::vector<at::Tensor>& gradients, int64_t bucket_bytes) {
  std::vector<Bucket> buckets;
  Bucket open;
  int64_t open_bytes = 0;
  for (const at::Tensor& gradient : gradients) {
    if (bytes_of(gradient) >= bucket_bytes / kInPlaceShare) {
      buckets.push_back({gradient});
      continue;
    }
    if (open_bytes + bytes_of(gradient) > bucket_bytes) {
      buckets.push_back(std::exchange(open, {}));
      open_bytes = 0;
    }
    open.push_back(gradient);
    open_bytes += bytes_of(gradient);
  }
  if (!open.empty()) {
    buckets.push_back(std::move(open));
  }
  return buckets;
}

// A bucket on its way.
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

}  // namespace

void absorb_gradients(Parameters& parameters) {
  const at::NoGradGuard no_grad;
  for (const auto& storage : parameters.storages()) {
    storage->absorb_gradient();
  }
}

void reduce_gradients(Parameters& parameters, int64_t bucket_bytes) {
  const at::NoGradGuard no_grad;
  for (const auto& storage : parameters.storages()) {
    if (!storage->gradient.defined()) {
      storage->gradient = at::zeros_like(storage->master);
    }
  }
  for (const auto& [name, site] : kReductions) {
    const Group& group = parameters.groups()[name];
    if (group.size() == 1) {
      continue;
    }
    std::optional<Reduction> travelling;
    for (Bucket& bucket : fill_buckets(gradients_of(parameters, name), bucket_bytes)) {
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
}

void clear_gradients(Parameters& parameters) {
  for (const auto& storage : parameters.storages()) {
    storage->gradient.reset();
  }
}

}  // namespace switchyard
