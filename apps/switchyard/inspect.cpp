#include <cstdio>
#include <memory>
#include <string>

#include <fmt/format.h>

#include "base/error.h"
#include "checkpoint/describe.h"
#include "commands.h"
#include "data/describe_dataset.h"
#include "hub/describe_hf.h"
#include "hub/hf_model.h"
#include "train/describe_model.h"

namespace switchyard {
namespace {

struct InspectOptions {
  std::string path;
  bool verify = false;
};

// A data set is named by its prefix; the name of one of its files, which shells complete, will do.
std::string dataset_prefix(const std::string& path) {
  for (const std::string suffix : {".bin", ".idx", ".json"}) {
    if (path.ends_with(suffix)) {
      const std::string prefix = path.substr(0, path.size() - suffix.size());
      return is_dataset(prefix) ? prefix : path;
    }
  }
  return path;
}

ExitCode inspect(const InspectOptions& options) {
  if (is_checkpoint(options.path)) {
    fmt::print("{}\n{}", describe_checkpoint(options.path, options.verify),
               describe_model(options.path));
    return ExitCode::kFinished;
  }
  if (is_hf_directory(options.path)) {
    fmt::print("{}", describe_hf_model(options.path));
    return ExitCode::kFinished;
  }
  const std::string prefix = dataset_prefix(options.path);
  check<FileError>(
      is_dataset(prefix),
      "{} is nothing known: expected a checkpoint, a run directory with checkpoints, a "
      "Hugging Face directory, or the prefix of a data set (there is no {}.idx)",
      options.path, prefix);
  fmt::print("{}", describe_dataset(prefix, options.verify));
  return ExitCode::kFinished;
}

}  // namespace

void add_inspect_command(CLI::App& program, Command& chosen) {
  auto options = std::make_shared<InspectOptions>();
  CLI::App* command =
      add_command(program, "inspect", "show what a checkpoint, a model or a data set holds",
                  "switchyard inspect runs/mine --verify");
  command
      ->add_option("PATH", options->path,
                   "checkpoint, run directory, Hugging Face directory, or prefix of a data set")
      ->required();
  command->add_flag("--verify", options->verify, "read all of it and compare its checksums");
  command->callback([options, &chosen] { chosen = [options] { return inspect(*options); }; });
}

}  // namespace switchyard
