#include "train/non_finite.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include <fmt/ranges.h>

#include <ATen/ATen.h>

#include "ops/adamw.h"

namespace switchyard {
namespace {

constexpr Site kFlags{"step.non_finite", Purpose::kStatistics};

// The pieces of all parameters in order of declaration, which is the order of the forward pass, and
// for each whether any rank has a value in it that is not finite.
class Pieces {
 public:
  // `which` is the storage's tensor to look at.
  Pieces(const Parameters& parameters, at::Tensor ParameterStorage::*which) {
    std::vector<int64_t> flags;
    for (const auto& storage : parameters.storages()) {
      const size_t first = flags.size();
      for (const Parameter& piece : storage->pieces) {
        names_.push_back(piece.name());
        flags.push_back(0);
      }
      for (const PieceRange& range : storage->owned) {
        const at::Tensor values = storage->owned_of((*storage).*which, range);
        if (!std::isfinite(sum_of_squares(values))) {
          flags[first + range.piece] = 1;
        }
      }
    }
    flags_ = at::tensor(flags, at::kLong);
    parameters.groups()[GroupName::kWorld].all_reduce(flags_, kFlags, ReduceOp::kMax);
  }

  int64_t size() const { return std::ssize(names_); }
  int64_t num_bad() const { return flags_.sum().item<int64_t>(); }
  const std::string& first_bad() const { return names_[index_of_bad(false)]; }
  const std::string& last_bad() const { return names_[index_of_bad(true)]; }

 private:
  size_t index_of_bad(bool from_the_end) const {
    const auto bad = at::nonzero(flags_).view({-1});
    return static_cast<size_t>(bad[from_the_end ? -1 : 0].item<int64_t>());
  }

  std::vector<std::string> names_;
  at::Tensor flags_;  // [pieces] int64
};

}  // namespace

std::string describe_non_finite(const Parameters& parameters, const StepOutcome& outcome) {
  std::vector<std::string> parts;
  const auto add_loss = [&](const char* name, double value) {
    if (!std::isfinite(value)) {
      // Which sign a NaN has is chance.
      parts.push_back(
          fmt::format("the {} is {}", name, std::isnan(value) ? std::abs(value) : value));
    }
  };
  add_loss("sum of loss weights", outcome.loss_weight);
  add_loss("language loss", outcome.loss_sum);
  add_loss("balance loss", outcome.balance_loss.value_or(0));
  add_loss("z-loss", outcome.z_loss.value_or(0));
  if (parts.empty()) {
    parts.emplace_back("all loss terms are finite");
  }
  const Pieces weights(parameters, &ParameterStorage::master);
  if (weights.num_bad() > 0) {
    parts.push_back(fmt::format("{} of {} weights are not finite, the first of them {}",
                                weights.num_bad(), weights.size(), weights.first_bad()));
  }
  const Pieces gradients(parameters, &ParameterStorage::gradient);
  if (gradients.num_bad() > 0) {
    parts.push_back(
        fmt::format("{} of {} gradients are not finite, nearest to the output that of {}",
                    gradients.num_bad(), gradients.size(), gradients.last_bad()));
  }
  return fmt::format("{}", fmt::join(parts, "; "));
}

std::optional<std::string> first_non_finite_weight(const Parameters& parameters) {
  const Pieces weights(parameters, &ParameterStorage::master);
  return weights.num_bad() > 0 ? std::optional(weights.first_bad()) : std::nullopt;
}

}  // namespace switchyard
