#include "optim/clip.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include <ATen/ATen.h>

#include "base/error.h"
#include "ops/adamw.h"

namespace switchyard {
namespace {

constexpr Site kNormSite{"clip.norm", Purpose::kStatistics};

}  // namespace

double gradient_norm(const Parameters& parameters, bool is_loss_finite) {
  double sum = is_loss_finite ? 0 : std::numeric_limits<double>::quiet_NaN();
  for (const auto& storage : parameters.storages()) {
    for (const PieceRange& range : storage->shares) {
      const Parameter& piece = storage->pieces[range.piece];
      const ShardRange part =
          shard_range(range.size(), piece.num_gradient_groups(), piece.gradient_group_index());
      const at::Tensor gradient = storage->owned_of(storage->gradient, range);
      sum += sum_of_squares(gradient.narrow(0, part.begin, part.size()));
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
