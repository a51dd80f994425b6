#include "optim/clip.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include <ATen/ATen.h>

#include "base/error.h"
#include "ops/adamw.h"
#include "optim/piece_runs.h"

namespace switchyard {
namespace {

constexpr Site kNormSite{"clip.norm", Purpose::kStatistics};

// The replicas of a piece, and which of them this rank has.
struct Replica {
  int64_t index;
  int64_t count;
  bool operator==(const Replica&) const = default;
};

Replica replica_of(const Parameter& piece) {
  return {piece.replica_index(), piece.num_replicas()};
}

}  // namespace

double gradient_norm(const Parameters& parameters, bool is_loss_finite) {
  double sum = is_loss_finite ? 0 : std::numeric_limits<double>::quiet_NaN();
  for (const auto& storage : parameters.storages()) {
    for (const auto& run : piece_runs(*storage, replica_of)) {
      const at::Tensor gradient = run.of(storage->gradient);
      const ShardRange share =
          shard_range(gradient.numel(), run.property.count, run.property.index);
      sum += sum_of_squares(gradient.slice(0, share.begin, share.end));
    }
  }
  const at::Tensor total = at::full({1}, sum, at::kDouble);
  parameters.groups()[GroupName::kWorld].all_reduce(total, kNormSite);
  return std::sqrt(*total.const_data_ptr<double>());
}

double clip_coefficient(double norm, double max_norm) {
  check<DivergedError>(std::isfinite(norm),
                       "the gradient norm is {}: the run has diverged; lower optimizer.lr or raise "
                       "optimizer.warmup_steps, and restart from the last checkpoint",
                       norm);
  constexpr double kEpsilon = 1e-6;
  return max_norm > 0 ? std::min(1.0, max_norm / (norm + kEpsilon)) : 1.0;
}

}  // namespace switchyard
