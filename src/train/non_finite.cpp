#include "train/non_finite.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <sstream>
#include <string_view>
#include <vector>

#include <fmt/ranges.h>

#include <ATen/ATen.h>

#include "ops/adamw.h"

namespace switchyard {
namespace {

constexpr Site kFlags{"step.non_finite", Purpose::kStatistics};
constexpr Site kFlagsOfStages{"step.non_finite_stages", Purpose::kStatistics};

// Where in the forward pass a parameter is used, by its name: the embedding first, then the layers.
int64_t depth_of(const std::string& name) {
  constexpr std::string_view kLayers = "layers.";
  if (!name.starts_with(kLayers)) {
    return name.starts_with("embedding.") ? -1 : std::numeric_limits<int64_t>::max();
  }
  return std::stoll(name.substr(kLayers.size()));
}

// The pieces of all parameters, of all pipeline stages, and which of them hold a value that is not
// finite on any rank, in the order of the forward pass.
class Pieces {
 public:
  // `which` is the storage's tensor to look at.
  Pieces(const Parameters& parameters, at::Tensor ParameterStorage::*which) {
    std::vector<std::string> names;
    std::vector<int64_t> flags;
    int64_t num_own = 0;
    for (const auto& storage : parameters.storages()) {
      const size_t first = flags.size();
      for (const Parameter& piece : storage->pieces) {
        names.push_back(piece.name());
        flags.push_back(0);
        num_own += piece.spec().copy_index == 0 ? 1 : 0;
      }
      for (const PieceRange& range : storage->owned) {
        const at::Tensor values = storage->owned_of((*storage).*which, range);
        if (!std::isfinite(sum_of_squares(values))) {
          flags[first + range.piece] = 1;
        }
      }
    }
    const at::Tensor of_stage = at::tensor(flags, at::kLong);
    parameters.groups()[GroupName::kDataContextTensor].all_reduce(of_stage, kFlags, ReduceOp::kMax);
    std::string bad;
    for (size_t i = 0; i < names.size(); ++i) {
      bad += of_stage[static_cast<int64_t>(i)].item<int64_t>() != 0 ? names[i] + "\n" : "";
    }
    gather(parameters.groups()[GroupName::kPipeline], num_own, bad);
  }

  int64_t size() const { return size_; }
  int64_t num_bad() const { return std::ssize(bad_); }
  const std::string& first_bad() const { return bad_.front(); }
  const std::string& last_bad() const { return bad_.back(); }

 private:
  // `own_bad`: a name a line.
  void gather(const Group& pipeline, int64_t num_own, const std::string& own_bad) {
    for (const auto& of_rank : pipeline.all_gather_counts({num_own}, kFlagsOfStages)) {
      size_ += of_rank[0];
    }
    for (const std::string& of_rank : pipeline.all_gather_text(own_bad, kFlagsOfStages)) {
      std::istringstream lines(of_rank);
      for (std::string name; std::getline(lines, name);) {
        if (std::find(bad_.begin(), bad_.end(), name) == bad_.end()) {  // a copy is no other
          bad_.push_back(name);
        }
      }
    }
    std::stable_sort(bad_.begin(), bad_.end(), [](const std::string& a, const std::string& b) {
      return depth_of(a) < depth_of(b);
    });
  }

  int64_t size_ = 0;
  std::vector<std::string> bad_;
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
