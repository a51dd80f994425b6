#include "optim/publish.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

namespace switchyard {
namespace {

struct GroupAndSite {
  GroupName group;
  Site site;
};

// One site per group, so that a test can remove the gathers of each kind alone.
constexpr GroupAndSite kGathers[] = {
    {GroupName::kDataContext, {"parameters.dense", Purpose::kParameters}},
    {GroupName::kDataContextTensor, {"parameters.replicated", Purpose::kParameters}},
    {GroupName::kExpertData, {"parameters.expert", Purpose::kParameters}},
};

}  // namespace

void publish_parameters(Parameters& parameters, int64_t bucket_bytes) {
  const at::NoGradGuard no_grad;
  for (const auto& storage : parameters.storages()) {
    if (!parameters.shards_parameters() || !storage->is_divided) {
      storage->publish_master();
    }
  }
  if (parameters.part_listener() != nullptr) {
    parameters.part_listener()->values_change();
  }
  if (!parameters.is_sharded() || parameters.shards_parameters()) {
    return;
  }
  const auto leaf_of = [](const ParameterStorage& storage) { return storage.leaf.detach(); };
  for (const auto& [name, site] : kGathers) {
    const Group& group = parameters.groups()[name];
    if (group.size() == 1) {
      continue;
    }
    for (Bucket& bucket : buckets_of(storages_of(parameters), name, leaf_of, bucket_bytes)) {
      const at::Tensor own = pack_of_rank(bucket, group.size(), group.rank());
      const at::Tensor all = group.all_gather_rows(own, counts_by_rank(bucket, group.size()), site);
      unpack_by_rank(all, bucket, group.size());
    }
  }
}

}  // namespace switchyard
