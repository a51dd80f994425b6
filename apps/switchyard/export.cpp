#include "hub/export.h"

#include <array>
#include <memory>
#include <string>
#include <utility>

#include <ATen/ATen.h>

#include "base/error.h"
#include "commands.h"
#include "conversion_line.h"
#include "data/byte_tokenizer.h"
#include "train/model_source.h"

namespace switchyard {
namespace {

struct Options {
  std::string checkpoint;
  std::string directory;
  std::string family;
  std::string dtype;
  double max_shard_gb = 5;
};

const std::array<std::pair<std::string, at::ScalarType>, 4> kDtypes = {
    {{"fp64", at::kDouble}, {"fp32", at::kFloat}, {"fp16", at::kHalf}, {"bf16", at::kBFloat16}}};

ExitCode export_checkpoint(const Options& options) {
  ExportOptions how;
  how.model_type = options.family;
  how.max_shard_bytes = static_cast<int64_t>(options.max_shard_gb * 1e9);
  for (const auto& [word, dtype] : kDtypes) {
    if (options.dtype == word) {
      how.dtype = dtype;
    }
  }
  const std::filesystem::path checkpoint = checkpoint_in(options.checkpoint);
  if (open_model_source(checkpoint).tokenizer == ByteTokenizer().name()) {
    how.more_files = byte_tokenizer_files();
  }
  ConversionLine line;
  const ExportReport report =
      export_model(checkpoint, options.directory, how,
                   [&](const ConversionProgress& progress) { line.update(progress); });
  line.finish();
  fmt::print("{}: {}, {} tensors in {} {}, {} other files carried over{}\n", options.directory,
             report.architecture, report.num_tensors, report.num_files,
             report.num_files == 1 ? "file" : "files", report.num_carried,
             report.is_rounded
                 ? "; weights were rounded to " +
                       (options.dtype.empty() ? "the dtypes they came in" : options.dtype)
                 : "");
  return ExitCode::kFinished;
}

}  // namespace

void add_export_command(CLI::App& program, Command& chosen) {
  auto options = std::make_shared<Options>();
  CLI::App* command =
      add_command(program, "export", "turn a checkpoint into a Hugging Face directory",
                  "switchyard export runs/mine models/mine --dtype bf16");
  command->add_option("CHECKPOINT", options->checkpoint, "checkpoint or run directory")->required();
  command->add_option("HF_DIR", options->directory, "folder to make")->required();
  command->add_option(
      "--family", options->family,
      "model_type to write, as in mixtral; by default the one it came with or, for a "
      "model made from scratch, the first that has such models");
  command
      ->add_option("--dtype", options->dtype,
                   "of all tensors; by default as they came, or as they are stored")
      ->check(CLI::IsMember({"fp64", "fp32", "fp16", "bf16"}));
  command
      ->add_option("--max-shard-gb", options->max_shard_gb,
                   "largest file, for a model made from scratch")
      ->check(number_in(1e-9, 1e9))
      ->capture_default_str();
  command->callback(
      [options, &chosen] { chosen = [options] { return export_checkpoint(*options); }; });
}

}  // namespace switchyard
