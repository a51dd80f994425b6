#include "optim/clip.h"

#include <algorithm>
#include <cmath>

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

double gradient_norm(const Parameters& parameters) {
  double sum = 0;
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

std::optional<std::string> first_non_finite_gradient(const Parameters& parameters) {
  for (const auto& storage : parameters.storages()) {
    for (size_t i = 0; i < storage->pieces.size(); ++i) {
      if (!std::isfinite(sum_of_squares(storage->piece(storage->gradient, i)))) {
        return storage->pieces[i].name();
      }
    }
  }
  return std::nullopt;
}

}  // namespace switchyard
