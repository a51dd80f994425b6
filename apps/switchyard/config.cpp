#include <cstdio>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include <fmt/ranges.h>

#include "base/error.h"
#include "base/log.h"
#include "base/with_commas.h"
#include "commands.h"
#include "config/load.h"
#include "config/manual.h"
#include "config/pipeline_layout.h"
#include "config/rules.h"
#include "model/parameter_count.h"
#include "parallel/draw_mesh.h"
#include "pipeline/simulate.h"
#include "pipeline/verify.h"
#include "train/model_source.h"

namespace switchyard {
namespace {

struct ShowOptions {
  std::string path;
  int64_t num_ranks = 0;  // 0: no grid is asked for
  std::vector<std::string> overrides;
};

// Both as comments, so that the output stays YAML.
void draw_stages(const Config& config) {
  if (config.parallel.pipeline_size == 1) {
    return;
  }
  const std::vector<StageLayers> stages = pipeline_layout(config);
  for (size_t i = 0; i < stages.size(); ++i) {
    const StageLayers& stage = stages[i];
    const int64_t count = stage.end - stage.first;
    fmt::print("# stage {}, on pp {}:{}{}{}\n", i,
               i % static_cast<size_t>(config.parallel.pipeline_size),
               stage.has_embedding ? " embedding" : "",
               count == 0   ? ""
               : count == 1 ? fmt::format(" layer {}", stage.first)
                            : fmt::format(" layers {}-{}", stage.first, stage.end - 1),
               stage.has_head ? " head" : "");
  }
}

// Where a backward pass takes as long as two forward passes, and its halves as long as each other.
double duration_of(const Action& action) {
  return action.kind == ActionKind::kBackward ? 2 : 1;
}

void draw_schedule(const Config& config, const Mesh& mesh) {
  const ParallelConfig& parallel = config.parallel;
  if (parallel.pipeline_size == 1) {
    return;
  }
  const int64_t micro_batches =
      config.train.global_batch_size / (config.train.micro_batch_size * mesh.size(Axis::kData));
  const Schedule schedule = training_schedule(parallel)(
      {parallel.pipeline_size, parallel.virtual_pipeline_size, micro_batches});
  fmt::print(
      "# {} micro-batches: ranks idle for {:.1f} % of them; each pp holds at most {} at once\n",
      micro_batches, 100 * simulate(schedule, duration_of).bubble_share(),
      fmt::join(most_in_flight(schedule), " "));
}

void draw_grid(const Config& config, int64_t num_ranks) {
  fmt::print("\n# {} ranks:\n", num_ranks);
  const Mesh mesh(mesh_shape(config.parallel, num_ranks));
  std::istringstream lines(draw_mesh(mesh));
  for (std::string line; std::getline(lines, line);) {
    fmt::print("# {}\n", line);
  }
  draw_stages(config);
  draw_schedule(config, mesh);
}

void print_size(const Config& config) {
  if (config.model.vocab_size == 0) {  // the tokenizer's, which is not opened here
    return;
  }
  const ParameterCount count = count_parameters(config);
  fmt::print("\n# {} parameters, of which a token uses {}\n", with_commas(count.total),
             with_commas(count.active));
}

// Prints even what breaks a rule, and then says so: a look at the values shows why.
ExitCode show(const ShowOptions& options) {
  const LoadedConfig loaded = read_config_from_model(options.path, options.overrides);
  fmt::print("{}", resolved_yaml(loaded.config, loaded.origins));
  for (const std::string& warning : loaded.warnings) {
    log_warning(warning);
  }
  check_config(loaded, ConfigUse::kDescribe);
  print_size(loaded.config);
  if (options.num_ranks > 0) {
    check_rules_of_world(loaded.config, options.num_ranks);
    draw_grid(loaded.config, options.num_ranks);
  }
  return ExitCode::kFinished;
}

struct KeysOptions {
  std::string only;
  bool as_markdown = false;
};

ExitCode print_keys(const KeysOptions& options) {
  check<ConfigError>(!options.as_markdown || options.only.empty(),
                     "--markdown makes a page of all sections: leave {} out", options.only);
  fmt::print("{}", options.as_markdown ? manual_markdown() : manual_text(options.only));
  return ExitCode::kFinished;
}

void add_show(CLI::App& config, Command& chosen) {
  auto options = std::make_shared<ShowOptions>();
  CLI::App* command =
      add_command(config, "show", "print every value with its origin and meaning, as YAML",
                  "switchyard config show run.yaml moe.top_k=4 --ranks 8");
  command->add_option("CONFIG", options->path, "YAML file")->required();
  command
      ->add_option("--ranks", options->num_ranks,
                   "check the layout for that many ranks, and list each rank's place and groups")
      ->check(CLI::Range(int64_t{1}, kMaxRanks));
  add_overrides(*command, options->overrides);
  command->callback([options, &chosen] { chosen = [options] { return show(*options); }; });
}

void add_keys(CLI::App& config, Command& chosen) {
  auto options = std::make_shared<KeysOptions>();
  CLI::App* command =
      add_command(config, "keys", "print every setting: what is allowed, its default and meaning",
                  "switchyard config keys moe");
  command->add_option("NAME", options->only, "a section or a setting; by default all");
  command->add_flag("--markdown", options->as_markdown, "as the page docs/config.md");
  command->callback([options, &chosen] { chosen = [options] { return print_keys(*options); }; });
}

}  // namespace

void add_config_commands(CLI::App& program, Command& chosen) {
  CLI::App* config = add_command(program, "config", "explain the settings",
                                 "switchyard config show run.yaml moe.top_k=4");
  config->require_subcommand(1);
  add_show(*config, chosen);
  add_keys(*config, chosen);
}

}  // namespace switchyard
