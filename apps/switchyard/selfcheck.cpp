#include "selfcheck/selfcheck.h"

#include <algorithm>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "commands.h"
#include "shrink_plan.h"
#include "train/model_source.h"

namespace switchyard {
namespace {

struct Options {
  std::string path;
  std::vector<std::string> overrides;
};

std::string describe_layout(const ShrunkConfig& shrunk) {
  const Mesh mesh(mesh_shape(shrunk.config.parallel, shrunk.num_ranks));
  const ParallelConfig& parallel = shrunk.config.parallel;
  const std::string pipeline =
      parallel.pipeline_size == 1
          ? ""
          : fmt::format(
                "pp {}, {} stages{}; ", parallel.pipeline_size,
                parallel.pipeline_size * parallel.virtual_pipeline_size,
                parallel.pipeline_schedule == PipelineSchedule::kZeroBubble ? ", zero bubble" : "");
  const std::string context =
      parallel.context_size == 1 ? "" : fmt::format(" x cp {}", parallel.context_size);
  return pipeline + fmt::format("dense layers tp {}{} x dp {}{}; experts etp {} x ep {} x edp {}{}",
                                mesh.size(Axis::kTensor), context, mesh.size(Axis::kData),
                                parallel.sequence_parallel ? ", sequence parallel" : "",
                                mesh.size(Axis::kExpertTensor), mesh.size(Axis::kExpert),
                                mesh.size(Axis::kExpertData),
                                parallel.expert_overlap ? ", dispatch and combine overlapped" : "");
}

void print_plan(const ShrunkConfig& shrunk) {
  fmt::print("layout: {} ranks, as threads: {}\n", shrunk.num_ranks, describe_layout(shrunk));
  print_changes(shrunk);
}

void print_kinds(const std::vector<ComparedKind>& kinds) {
  fmt::print("  {:<28}{:>8}  {:>18}  {}\n", "", "tensors", "largest difference", "of");
  for (const ComparedKind& kind : kinds) {
    fmt::print("  {:<28}{:>8}  {:>18.2g}  {}\n", kind.kind, kind.num_tensors, kind.largest,
               kind.largest > 0 ? kind.largest_name : "all equal");
  }
}

void print_report(const SelfcheckReport& report) {
  fmt::print("against one rank, in fp64, {} steps; {} places communicate:\n", kLayoutRunSteps,
             report.sites.collectives.size());
  print_kinds(report.kinds);
  fmt::print(
      "in fp32, first step{}:\n",
      report.num_choices == 0
          ? ""
          : fmt::format(", with the experts that one rank chose ({} of {} choices would have "
                        "been others)",
                        report.num_flips, report.num_choices));
  print_kinds(report.kinds_in_fp32);
}

ExitCode run(const Options& options) {
  const LoadedConfig loaded =
      load_config_from_model(options.path, options.overrides, ConfigUse::kDescribe);
  const ShrunkConfig shrunk = shrink(loaded.config);
  print_plan(shrunk);
  const SelfcheckReport report = selfcheck(shrunk);
  print_report(report);
  if (report.failures.empty()) {
    fmt::print(
        "selfcheck: passed: the layout gives the one-rank result within {} in fp64, {} in "
        "fp32\n",
        kSelfcheckTolerance, fp32_tolerance(shrunk.config));
    return ExitCode::kFinished;
  }
  throw Error(ExitCode::kBug,
              fmt::format("selfcheck: FAILED: this layout does not give the one-rank result: do "
                          "not train with it\n{}",
                          fmt::join(report.failures, "\n")));
}

}  // namespace

void add_selfcheck_command(CLI::App& program, Command& chosen) {
  auto options = std::make_shared<Options>();
  CLI::App* command = add_command(
      program, "selfcheck",
      "prove that a configuration's layout gives the one-rank result, on a shrunk copy of it",
      "switchyard selfcheck run.yaml parallel.tensor_size=2 parallel.expert_size=4");
  command->add_option("CONFIG", options->path, "YAML file")->required();
  add_overrides(*command, options->overrides);
  command->callback([options, &chosen] { chosen = [options] { return run(*options); }; });
}

}  // namespace switchyard
