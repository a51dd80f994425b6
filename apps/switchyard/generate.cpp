#include <cstdio>
#include <memory>
#include <string>

#include "commands.h"
#include "train/generator.h"
#include "train/trainable_model.h"

namespace switchyard {
namespace {

struct Options {
  std::string model;
  std::string prompt;
  SamplingOptions sampling;
};

ExitCode generate_text(const Options& options) {
  const std::unique_ptr<Groups> groups = Groups::single();
  const LoadedModel loaded = load_model(options.model, *groups);
  SamplingOptions sampling = options.sampling;
  sampling.context_length = loaded.config.data.sequence_length;
  fmt::print("{}", options.prompt);
  generate(*loaded.model, *loaded.tokenizer, options.prompt, sampling,
           [](const std::string& piece) {
             std::fwrite(piece.data(), 1, piece.size(), stdout);
             std::fflush(stdout);
           });
  fmt::print("\n");
  return ExitCode::kFinished;
}

}  // namespace

void add_generate_command(CLI::App& program, Command& chosen) {
  auto options = std::make_shared<Options>();
  SamplingOptions& sampling = options->sampling;
  CLI::App* command =
      add_command(program, "generate", "continue a text with a trained model",
                  "switchyard generate runs/quickstart --prompt \"KING HENRY.\" --temperature 0.7");
  command->add_option("MODEL", options->model, "run directory or checkpoint")->required();
  command->add_option("--prompt", options->prompt, "text to continue")->required();
  command->add_option("--max-tokens", sampling.max_tokens, "new tokens at most")
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 40))
      ->capture_default_str();
  command->add_option("--temperature", sampling.temperature, "0 is greedy, 1 the model's own odds")
      ->check(CLI::Range(0.0, 100.0))
      ->capture_default_str();
  command->add_option("--top-k", sampling.top_k, "draw from the k likeliest tokens; 0: from all")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  command
      ->add_option("--top-p", sampling.top_p,
                   "draw from the likeliest tokens that together reach this probability")
      ->check(CLI::Range(0.0, 1.0))
      ->capture_default_str();
  command->add_option("--seed", sampling.seed, "another seed, another text")->capture_default_str();
  command->callback([options, &chosen] { chosen = [options] { return generate_text(*options); }; });
}

}  // namespace switchyard
