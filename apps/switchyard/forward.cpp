#include "train/forward.h"

#include <cstdio>
#include <memory>
#include <optional>
#include <string>

#include "commands.h"
#include "config/values.h"

namespace switchyard {
namespace {

struct Options {
  std::string model;
  std::string tokens;
  std::string out;
  std::string precision = "fp32";
  bool with_gradients = false;
};

ExitCode forward(const Options& options) {
  const std::unique_ptr<Groups> groups = Groups::single();
  LoadModelOptions load{.precision = Precision::kFp32, .auxiliary_losses = false};
  read_value(RawValue{{options.precision}, false}, kPrecisionWords, *load.precision);
  LoadedModel loaded = load_model(options.model, *groups, load);
  run_forward_on_file(loaded, options.tokens, options.out, options.with_gradients);
  fmt::print("{}: logits{} of {}\n", options.out,
             options.with_gradients ? ", loss and gradients" : "", loaded.path.string());
  return ExitCode::kFinished;
}

}  // namespace

void add_forward_command(CLI::App& program, Command& chosen) {
  auto options = std::make_shared<Options>();
  CLI::App* command = add_command(
      program, "forward", "logits, loss and gradients of given tokens, as a file",
      "switchyard forward models/tiny --tokens tokens.safetensors --out out.safetensors");
  command
      ->add_option("MODEL", options->model, "Hugging Face directory, checkpoint or run directory")
      ->required();
  command
      ->add_option(
          "--tokens", options->tokens,
          "safetensors file: int64 \"tokens\" [batch, seq], and \"labels\" of the same shape "
          "(-100: none) for a loss")
      ->required();
  command
      ->add_option("--out", options->out,
                   "safetensors file to write: fp32 \"logits\", \"loss\", \"grad.<name>\"")
      ->required();
  command->add_option("--precision", options->precision, "number format to compute in")
      ->check(CLI::IsMember(word_list(kPrecisionWords)))
      ->capture_default_str();
  command->add_flag("--grads", options->with_gradients,
                    "also the gradients of the loss, by their Hugging Face names");
  command->callback([options, &chosen] { chosen = [options] { return forward(*options); }; });
}

}  // namespace switchyard
