#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "base/log.h"
#include "commands.h"
#include "launched_groups.h"
#include "train/model_source.h"
#include "train/training_run.h"

namespace switchyard {
namespace {

struct Options {
  std::string path;
  std::vector<std::string> overrides;
  TrainOptions train;
};

ExitCode train(const Options& options) {
  const LoadedConfig loaded =
      load_config_from_model(options.path, options.overrides, ConfigUse::kTrain);
  const std::unique_ptr<Groups> groups = join_launched_ranks(loaded.config);
  return TrainingRun(loaded, options.train, *groups).run();
}

}  // namespace

void add_train_command(CLI::App& program, Command& chosen) {
  auto options = std::make_shared<Options>();
  CLI::App* command =
      add_command(program, "train", "train a model as a configuration says; resumes by itself",
                  "switchyard train recipes/quickstart.yaml run.dir=runs/mine optimizer.lr=1e-3");
  command->add_option("CONFIG", options->path, "YAML file")->required();
  command->add_flag("--accept-changes", options->train.accept_changes,
                    "resume although settings changed that make it another run");
  add_overrides(*command, options->overrides);
  command->callback([options, &chosen] { chosen = [options] { return train(*options); }; });
}

}  // namespace switchyard
