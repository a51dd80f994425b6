#include "optim/partition.h"

#include <algorithm>
#include <utility>

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include "base/error.h"
#include "optim/gradients.h"

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

constexpr std::string_view kEmbedding = "embedding";

// Elements of some leaves on their way to this rank. One leaf alone receives in place.
class Gather {
 public:
  Gather(Bucket leaves, const Group& group, const Site& site)
      : leaves_(std::move(leaves)), num_ranks_(group.size()) {
    const at::Tensor own = pack_of_rank(leaves_, num_ranks_, group.rank());
    const std::vector<int64_t> counts = counts_by_rank(leaves_, num_ranks_);
    int64_t total = 0;
    for (const at::Tensor& leaf : leaves_) {
      total += leaf.numel();
    }
    received_ = leaves_.size() == 1 ? leaves_[0] : at::empty({total}, own.options());
    pending_ = group.start_all_gather_rows(own, counts, received_, site);
  }

  void finish() {
    pending_.wait();
    if (leaves_.size() > 1) {
      unpack_by_rank(received_, leaves_, num_ranks_);
    }
  }

 private:
  Bucket leaves_;
  int64_t num_ranks_;
  at::Tensor received_;
  PendingCollective pending_;
};

}  // namespace

struct Partition::Part {
  std::string name;
  std::vector<ParameterStorage*> storages = {};
  std::vector<ParameterStorage*> divided = {};  // those that come and go
  int64_t num_uses = 0;
  bool has_memory = false;  // its leaves are here, or on their way by `gathers`
  std::vector<Gather> gathers = {};
  bool is_reduced = false;  // in this backward pass
};

Partition::Partition(Parameters& parameters, int64_t prefetch_layers)
    : parameters_(parameters), prefetch_layers_(prefetch_layers) {
  for (const auto& storage : parameters.storages()) {
    const std::string name = part_of(storage->pieces.front().name());
    if (parts_.empty() || parts_.back()->name != name) {
      parts_.push_back(std::make_unique<Part>(Part{.name = name}));
    }
    Part& part = *parts_.back();
    part.storages.push_back(storage.get());
    if (parameters.shards_parameters() && storage->is_divided) {
      part.divided.push_back(storage.get());
    }
  }
  parameters_.set_part_listener(this);
}

Partition::~Partition() {
  parameters_.set_part_listener(nullptr);
}

size_t Partition::index_of(const std::string& name) const {
  const auto found = std::find_if(parts_.begin(), parts_.end(),
                                  [&](const auto& part) { return part->name == name; });
  check<ShapeError>(found != parts_.end(), "{} is no part of this model", name);
  return static_cast<size_t>(found - parts_.begin());
}

void Partition::forward_begins(const std::string& part) {
  begin_use(index_of(part), Direction::kForward);
}

void Partition::forward_ends(const std::string& part) {
  end_use(index_of(part));
}

void Partition::backward_begins(const std::string& part) {
  begin_use(index_of(part), Direction::kBackward);
}

void Partition::backward_ends(const std::string& part) {
  const size_t index = index_of(part);
  end_use(index);
  if (part != kEmbedding) {
    reduce(*parts_[index]);
  }
}

void Partition::pass_ends(const std::vector<std::string>& parts) {
  for (const std::string& name : parts) {
    Part& part = *parts_[index_of(name)];
    if (!part.is_reduced) {
      reduce(part);
    }
    part.is_reduced = false;
    for (const ParameterStorage* storage : part.storages) {
      check<ShapeError>(!storage->leaf.grad().defined(), "{} got a gradient after its reduction",
                        storage->pieces.front().name());
    }
  }
}

void Partition::values_change() {
  for (const auto& part : parts_) {
    check<ShapeError>(part->num_uses == 0, "{} changes while it is in use", part->name);
    if (part->has_memory) {
      finish_gathers(*part);
      ++part->num_uses;
      end_use(index_of(part->name));
    }
  }
}

void Partition::with_all_present(const std::function<void()>& act) {
  for (size_t index = 0; index < parts_.size(); ++index) {
    begin_use(index, Direction::kForward);
  }
  act();
  for (size_t index = 0; index < parts_.size(); ++index) {
    end_use(index);
  }
}

void Partition::begin_use(size_t index, Direction direction) {
  Part& part = *parts_[index];
  ++part.num_uses;
  if (!parameters_.shards_parameters()) {
    return;
  }
  start_gathers(part);
  const int64_t step = direction == Direction::kForward ? 1 : -1;
  for (int64_t ahead = 1; ahead <= prefetch_layers_; ++ahead) {
    const int64_t next = static_cast<int64_t>(index) + step * ahead;
    const bool is_there = next >= 0 && next < std::ssize(parts_);
    // The embedding's backward pass reads no weights.
    if (is_there && (direction == Direction::kForward ||
                     parts_[static_cast<size_t>(next)]->name != kEmbedding)) {
      start_gathers(*parts_[static_cast<size_t>(next)]);
    }
  }
  finish_gathers(part);
}

void Partition::end_use(size_t index) {
  Part& part = *parts_[index];
  --part.num_uses;
  if (part.num_uses == 0 && part.has_memory) {
    part.has_memory = false;
    for (ParameterStorage* storage : part.divided) {
      storage->free_leaf();
    }
  }
}

void Partition::start_gathers(Part& part) {
  if (part.has_memory || part.divided.empty()) {
    return;
  }
  const at::NoGradGuard no_grad;
  part.has_memory = true;
  for (ParameterStorage* storage : part.divided) {
    storage->allocate_leaf();
    storage->publish_master();
  }
  const auto leaf_of = [](const ParameterStorage& storage) { return storage.leaf.variable_data(); };
  for (const auto& [name, site] : kGathers) {
    const Group& group = parameters_.groups()[name];
    if (group.size() == 1) {
      continue;
    }
    for (Bucket& bucket : buckets_of(part.divided, name, leaf_of, kBucketBytes)) {
      part.gathers.emplace_back(std::move(bucket), group, site);
    }
  }
}

void Partition::finish_gathers(Part& part) {
  const at::NoGradGuard no_grad;
  for (Gather& gather : part.gathers) {
    gather.finish();
  }
  part.gathers.clear();
}

void Partition::reduce(Part& part) {
  reduce_into_shards(part.storages, parameters_.groups());
  part.is_reduced = true;
}

std::unique_ptr<Partition> make_partition(Parameters& parameters, const ParallelConfig& parallel) {
  return parameters.shards_gradients()
             ? std::make_unique<Partition>(parameters, parallel.prefetch_layers)
             : nullptr;
}

}  // namespace switchyard
