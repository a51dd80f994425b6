#include "selfcheck/selfcheck.h"

#include <array>

#include "selfcheck/logical_tensors.h"

namespace switchyard {
namespace {

// The kinds, by how the names of LayoutRun's results begin; the last takes the rest.
struct Kind {
  const char* prefix;
  const char* words;
};
constexpr std::array kKinds{
    Kind{"grad.", "gradients, first step"},      Kind{"weight.", "weights, after three steps"},
    Kind{"buffer.", "selection biases"},         Kind{"load.", "tokens per expert"},
    Kind{"grad_norm.", "norms of the gradient"}, Kind{"", "losses and their terms"},
};

size_t kind_of(const std::string& name) {
  size_t kind = 0;
  while (!name.starts_with(kKinds[kind].prefix)) {
    ++kind;
  }
  return kind;
}

// Micro-batches of a step: two for each data-parallel rank.
int64_t num_micro_batches(const ShrunkConfig& shrunk) {
  const ParallelConfig& parallel = shrunk.config.parallel;
  return 2 * shrunk.num_ranks /
         (parallel.tensor_size * parallel.context_size * parallel.pipeline_size);
}

}  // namespace

SelfcheckReport selfcheck(const ShrunkConfig& shrunk) {
  LayoutRun layout{.config = shrunk.config,
                   .num_ranks = shrunk.num_ranks,
                   .num_micro_batches = num_micro_batches(shrunk)};
  LayoutRun one_rank = layout;
  one_rank.config.parallel = ParallelConfig{};
  one_rank.num_ranks = 1;
  LogicalTensors expected;
  run_layout(one_rank, expected);
  LogicalTensors actual;
  SelfcheckReport report;
  report.sites = run_layout(layout, actual);
  for (const Kind& kind : kKinds) {
    report.kinds.push_back({.kind = kind.words});
  }
  for (const Difference& difference : compare(expected, actual)) {
    ComparedKind& kind = report.kinds[kind_of(difference.name)];
    ++kind.num_tensors;
    if (difference.relative >= kind.largest) {
      kind.largest = difference.relative;
      kind.largest_name = difference.name;
    }
  }
  std::erase_if(report.kinds, [](const ComparedKind& kind) { return kind.num_tensors == 0; });
  report.failures = differences(expected, actual, kSelfcheckTolerance);
  return report;
}

}  // namespace switchyard
