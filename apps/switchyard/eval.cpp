#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "base/error.h"
#include "commands.h"
#include "data/evaluation_data.h"
#include "train/evaluate.h"
#include "train/trainable_model.h"

namespace switchyard {
namespace {

struct Options {
  std::string model;
  std::vector<std::string> prefixes;
  int64_t sequence_length = 0;
  int64_t batch_size = 8;
};

ExitCode evaluate_model(const Options& options) {
  const std::unique_ptr<Groups> groups = Groups::single();
  const LoadedModel loaded = load_model(options.model, *groups);
  const int64_t sequence_length =
      options.sequence_length > 0 ? options.sequence_length : loaded.config.data.sequence_length;
  check<ConfigError>(sequence_length > 0,
                     "the checkpoint does not say data.sequence_length: give --sequence-length");
  const EvaluationData data("--data", options.prefixes, *loaded.tokenizer, sequence_length,
                            {.documents = document_options(loaded.config.data),
                             .vocab_size = loaded.config.model.vocab_size,
                             .is_tokenizer_stated = true});
  const EvalOutcome outcome = evaluate(*loaded.model, data, options.batch_size, 0, *groups);
  const double loss = outcome.loss_sum / outcome.loss_weight;
  fmt::print("loss        {:.6f} nats per token\n", loss);
  fmt::print("perplexity  {:.4f}\n", std::exp(loss));
  fmt::print("tokens      {:.0f}, each once\n", outcome.loss_weight);
  fmt::print("model       {}, step {}\n", loaded.path.string(), loaded.record.step);
  return ExitCode::kFinished;
}

}  // namespace

void add_eval_command(CLI::App& program, Command& chosen) {
  auto options = std::make_shared<Options>();
  CLI::App* command =
      add_command(program, "eval", "token-weighted loss on held-out data",
                  "switchyard eval runs/quickstart --data .deps/text/heldout_bytes");
  command->add_option("MODEL", options->model, "run directory or checkpoint")->required();
  command->add_option("--data", options->prefixes, "prefixes of tokenized data")->required();
  command
      ->add_option("--sequence-length", options->sequence_length,
                   "tokens of one sequence; 0: as in training")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  command->add_option("--batch-size", options->batch_size, "sequences at once")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  command->callback(
      [options, &chosen] { chosen = [options] { return evaluate_model(*options); }; });
}

}  // namespace switchyard
