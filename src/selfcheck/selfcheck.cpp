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
    Kind{"grad.", "gradients, first step"}, Kind{"weight.", "weights, after three steps"},
    Kind{"master.", "their master values"}, Kind{"buffer.", "selection biases"},
    Kind{"load.", "tokens per expert"},     Kind{"grad_norm.", "norms of the gradient"},
    Kind{"", "losses and their terms"},
};

size_t kind_of(const std::string& name) {
  size_t kind = 0;
  while (!name.starts_with(kKinds[kind].prefix)) {
    ++kind;
  }
  return kind;
}

}  // namespace

SelfcheckReport selfcheck(const ShrunkConfig& shrunk) {
  const Mesh mesh(mesh_shape(shrunk.config.parallel, shrunk.num_ranks));
  // More than a pipeline has ranks, and no multiple of them.
  const int64_t per_rank = mesh.size(Axis::kPipeline) + 1;
  const LayoutRun layout{.config = shrunk.config,
                         .num_ranks = shrunk.num_ranks,
                         .num_micro_batches = per_rank * mesh.size(Axis::kData)};
  LogicalTensors expected;
  run_layout(on_one_rank(layout), expected);
  LogicalTensors actual;
  SelfcheckReport report;
  report.sites = run_layout(layout, actual);
  for (const Kind& kind : kKinds) {
    report.kinds.push_back({.kind = kind.words});
  }
  for (const Difference& difference : compare(expected, actual)) {
    ComparedKind& kind = report.kinds[kind_of(difference.name)];
    ++kind.num_tensors;
    if (!(difference.relative < kind.largest)) {  // one that is no number is the furthest
      kind.largest = difference.relative;
      kind.largest_name = difference.name;
    }
  }
  std::erase_if(report.kinds, [](const ComparedKind& kind) { return kind.num_tensors == 0; });
  report.failures = differences(expected, actual, kSelfcheckTolerance);
  return report;
}

}  // namespace switchyard
