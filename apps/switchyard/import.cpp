#include "hub/import.h"

#include <memory>
#include <string>

#include "commands.h"
#include "conversion_line.h"
#include "train/model_source.h"

namespace switchyard {
namespace {

struct Options {
  std::string directory;
  std::string checkpoint;
};

ExitCode import(const Options& options) {
  const HfModel model = open_hf_model(options.directory);
  ConversionLine line;
  import_model(model, options.checkpoint,
               [&](const ConversionProgress& progress) { line.update(progress); });
  line.finish();
  fmt::print("{}: {}, {} tensors, each used once\n", options.checkpoint, model.family->architecture,
             model.tensors.size());
  const double coefficient = model.config.moe.aux_loss_coeff;
  if (model.config.moe.num_experts > 0) {
    fmt::print("balance loss for training: {}\n",
               coefficient > 0 ? fmt::format("moe.aux_loss_coeff {:.6g}, from router_aux_loss_coef",
                                             coefficient)
                               : "OFF");
  }
  return ExitCode::kFinished;
}

}  // namespace

void add_import_command(CLI::App& program, Command& chosen) {
  auto options = std::make_shared<Options>();
  CLI::App* command =
      add_command(program, "import", "turn a Hugging Face directory into a checkpoint",
                  "switchyard import models/tiny checkpoints/tiny");
  command->add_option("HF_DIR", options->directory, "folder with config.json and safetensors files")
      ->required();
  command->add_option("CHECKPOINT", options->checkpoint, "folder to make")->required();
  command->callback([options, &chosen] { chosen = [options] { return import(*options); }; });
}

}  // namespace switchyard
