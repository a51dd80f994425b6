#include "config/replan.h"

#include <algorithm>
#include <array>
#include <tuple>

#include "config/rules.h"

namespace switchyard {
namespace {

struct Size {
  const char* name;
  int64_t ParallelConfig::*member;
};

constexpr std::array kSizes{
    Size{"parallel.tensor_size", &ParallelConfig::tensor_size},
    Size{"parallel.pipeline_size", &ParallelConfig::pipeline_size},
    Size{"parallel.context_size", &ParallelConfig::context_size},
    Size{"parallel.expert_size", &ParallelConfig::expert_size},
    Size{"parallel.expert_tensor_size", &ParallelConfig::expert_tensor_size}};

struct Candidate {
  ParallelConfig parallel;
  int64_t num_ranks = 0;

  int64_t dense_size() const {
    return parallel.tensor_size * parallel.pipeline_size * parallel.context_size;
  }
  int64_t expert_size() const {
    return parallel.expert_size * parallel.expert_tensor_size * parallel.pipeline_size;
  }
};

std::vector<int64_t> divisors_of(int64_t number) {
  std::vector<int64_t> divisors;
  for (int64_t divisor = number; divisor >= 1; --divisor) {
    if (number % divisor == 0) {
      divisors.push_back(divisor);
    }
  }
  return divisors;
}

// All choices of a divisor for each size.
std::vector<ParallelConfig> smaller_layouts(const ParallelConfig& parallel) {
  std::vector<ParallelConfig> layouts{parallel};
  for (const Size& size : kSizes) {
    std::vector<ParallelConfig> more;
    for (const ParallelConfig& layout : layouts) {
      for (const int64_t divisor : divisors_of(parallel.*size.member)) {
        more.push_back(layout);
        more.back().*size.member = divisor;
      }
    }
    layouts = std::move(more);
  }
  return layouts;
}

int64_t num_changes(const ParallelConfig& before, const ParallelConfig& after) {
  return std::count_if(kSizes.begin(), kSizes.end(),
                       [&](const Size& size) { return before.*size.member != after.*size.member; });
}

bool keeps_the_rules(Config config, const Candidate& candidate) {
  config.parallel = candidate.parallel;
  return broken_rules_of_world(config, candidate.num_ranks).empty() &&
         broken_rules(config, ConfigUse::kTrain).empty();
}

}  // namespace

std::optional<Replan> replan(const Config& config, int64_t fewest, int64_t most) {
  std::vector<Candidate> candidates;
  for (const ParallelConfig& layout : smaller_layouts(config.parallel)) {
    for (int64_t num_ranks = most; num_ranks >= fewest; --num_ranks) {
      const Candidate candidate{layout, num_ranks};
      if (num_ranks % candidate.dense_size() == 0 && num_ranks % candidate.expert_size() == 0) {
        candidates.push_back(candidate);
      }
    }
  }
  const auto rank_of = [&](const Candidate& candidate) {
    return std::tuple(num_changes(config.parallel, candidate.parallel), -candidate.num_ranks,
                      -candidate.dense_size() * candidate.expert_size());
  };
  std::stable_sort(candidates.begin(), candidates.end(),
                   [&](const Candidate& left, const Candidate& right) {
                     return rank_of(left) < rank_of(right);
                   });
  const auto best =
      std::find_if(candidates.begin(), candidates.end(),
                   [&](const Candidate& candidate) { return keeps_the_rules(config, candidate); });
  if (best == candidates.end()) {
    return std::nullopt;
  }
  Replan plan{.num_ranks = best->num_ranks, .changes = {}};
  for (const Size& size : kSizes) {
    if (config.parallel.*size.member != best->parallel.*size.member) {
      plan.changes.emplace_back(size.name, best->parallel.*size.member);
    }
  }
  return plan;
}

}  // namespace switchyard
