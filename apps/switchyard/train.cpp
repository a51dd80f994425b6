#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "base/log.h"
#include "commands.h"
#include "launched_groups.h"
#include "shrunk_run.h"
#include "train/model_source.h"
#include "train/training_run.h"
#include "train_words.h"

namespace switchyard {
namespace {

ExitCode train(const TrainWords& options) {
  if (options.is_shrunk) {
    return train_shrunk(
        load_config_from_model(options.path, options.overrides, ConfigUse::kDescribe));
  }
  const LoadedConfig loaded =
      load_config_from_model(options.path, options.overrides, ConfigUse::kTrain);
  const std::unique_ptr<Groups> groups = join_launched_ranks(loaded.config);
  return TrainingRun(loaded, {.accept_changes = options.accept_changes}, *groups).run();
}

// Of the words behind `train`.
void add_words(CLI::App& command, TrainWords& options) {
  command.add_option("CONFIG", options.path, "YAML file")->required();
  command.add_flag("--accept-changes", options.accept_changes,
                   "resume although settings changed that make it another run");
  command.add_flag("--shrink", options.is_shrunk,
                   "only try it: two steps of a small copy of the model, by one rank, on drawn "
                   "tokens; writes nothing");
  add_overrides(command, options.overrides);
}

}  // namespace

TrainWords read_train_words(const std::vector<std::string>& words) {
  TrainWords options;
  CLI::App command("", "switchyard launch ... -- train");
  add_words(command, options);
  // CLI11 takes them from the back.
  command.parse(std::vector<std::string>(words.rbegin(), words.rend()));
  return options;
}

void add_train_command(CLI::App& program, Command& chosen) {
  auto options = std::make_shared<TrainWords>();
  CLI::App* command =
      add_command(program, "train", "train a model as a configuration says; resumes by itself",
                  "switchyard train recipes/quickstart.yaml run.dir=runs/mine optimizer.lr=1e-3");
  add_words(*command, *options);
  command->callback([options, &chosen] { chosen = [options] { return train(*options); }; });
}

}  // namespace switchyard
