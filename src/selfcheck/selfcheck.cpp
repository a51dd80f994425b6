#include "selfcheck/selfcheck.h"

#include <array>

#include "config/rules/questions.h"
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

// The furthest of each kind, without kinds of which there is no tensor.
std::vector<ComparedKind> summarize(const std::vector<Difference>& differences) {
  std::vector<ComparedKind> kinds;
  for (const Kind& kind : kKinds) {
    kinds.push_back({.kind = kind.words});
  }
  for (const Difference& difference : differences) {
    ComparedKind& kind = kinds[kind_of(difference.name)];
    ++kind.num_tensors;
    if (!(difference.relative < kind.largest)) {  // one that is no number is the furthest
      kind.largest = difference.relative;
      kind.largest_name = difference.name;
    }
  }
  std::erase_if(kinds, [](const ComparedKind& kind) { return kind.num_tensors == 0; });
  return kinds;
}

void check_in_fp32(const LayoutRun& layout, SelfcheckReport& report) {
  ExpertChoices choices;
  LogicalTensors expected;
  LogicalTensors actual;
  run_first_step_in_fp32(on_one_rank(layout), choices, expected);
  run_first_step_in_fp32(layout, choices, actual, /*count_flips=*/true);
  report.kinds_in_fp32 = summarize(compare(expected, actual, kFp32LeastShare));
  for (const std::string& line :
       differences(expected, actual, fp32_tolerance(layout.config), kFp32LeastShare)) {
    report.failures.push_back("in fp32: " + line);
  }
  report.num_choices = choices.num_recorded();
  report.num_flips = choices.num_flips();
}

}  // namespace

double fp32_tolerance(const Config& config) {
  constexpr double kOfScans = 1e-4;
  const bool scans = has_mixer(config, MixerKind::kMamba1) ||
                     has_mixer(config, MixerKind::kMamba2) ||
                     has_mixer(config, MixerKind::kDeltaNet);
  return scans ? kOfScans : kFp32Tolerance;
}

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
  report.kinds = summarize(compare(expected, actual));
  report.failures = differences(expected, actual, kSelfcheckTolerance);
  check_in_fp32(layout, report);
  return report;
}

}  // namespace switchyard
