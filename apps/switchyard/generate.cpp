#include <cstdio>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/out_of_memory.h"
#include "commands.h"
#include "config/values.h"
#include "data/prompt_file.h"
#include "train/generator.h"
#include "train/trainable_model.h"

namespace switchyard {
namespace {

struct Options {
  std::string model;
  std::vector<std::string> prompts;
  std::string prompt_file;
  std::string key = "text";
  std::string tokenizer;
  std::string precision;
  bool as_json = false;
  int64_t batch_size = 16;
  SamplingOptions sampling;
};

void print_now(const std::string& text) {
  std::fwrite(text.data(), 1, text.size(), stdout);
  std::fflush(stdout);
}

// Texts grow side by side, but only one can be shown while it does: the first that is not done. The
// others wait.
class TextStream {
 public:
  explicit TextStream(const std::vector<std::string>& prompts)
      : pieces_(prompts), is_done_(prompts.size(), false) {}

  void add(size_t index, const std::string& piece) {
    pieces_[index] += piece;
    show();
  }
  void finish() {
    is_done_.assign(is_done_.size(), true);
    show();
  }

 private:
  void show() {
    while (current_ < pieces_.size()) {
      print_now(pieces_[current_]);
      pieces_[current_].clear();
      if (!is_done_[current_]) {
        return;
      }
      print_now("\n");
      ++current_;
    }
  }

  std::vector<std::string> pieces_;  // not shown yet
  std::vector<bool> is_done_;
  size_t current_ = 0;
};

void print_json(const std::string& prompt, const Generated& generated) {
  nlohmann::ordered_json line;
  line["prompt"] = prompt;
  line["text"] = generated.text;
  line["ids"] = generated.ids;
  line["stopped_by"] = generated.is_ended ? "end_of_document" : "max_tokens";
  // Text that ends within a character is not valid UTF-8.
  print_now(line.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n");
}

ExitCode generate_text(const Options& options) {
  std::vector<std::string> prompts = options.prompts;
  if (!options.prompt_file.empty()) {
    const auto more = read_prompts(options.prompt_file, options.key);
    prompts.insert(prompts.end(), more.begin(), more.end());
  }
  check<ConfigError>(!prompts.empty(), "nothing to continue: give --prompt or --prompts");
  const std::unique_ptr<Groups> groups = Groups::single();
  LoadModelOptions load;
  if (!options.precision.empty()) {
    read_value(RawValue{{options.precision}, false}, kPrecisionWords, load.precision.emplace());
  }
  const LoadedModel loaded = load_model(options.model, *groups, load);
  const std::unique_ptr<Tokenizer> tokenizer = loaded.make_tokenizer(options.tokenizer);
  SamplingOptions sampling = options.sampling;
  sampling.end_ids = end_ids_of(loaded.source);
  sampling.context_length = loaded.config.data.sequence_length;
  // Dynamic rotary positions depend on the longest sequence that is computed.
  const bool is_alone = loaded.config.rope.type == RopeType::kDynamic;
  const size_t batch_size = is_alone ? 1 : static_cast<size_t>(options.batch_size);
  for (size_t start = 0; start < prompts.size(); start += batch_size) {
    const std::vector<std::string> batch(
        prompts.begin() + static_cast<int64_t>(start),
        prompts.begin() + static_cast<int64_t>(std::min(start + batch_size, prompts.size())));
    TextStream stream(batch);
    const auto write = [&](size_t index, const std::string& piece) {
      if (!options.as_json) {
        stream.add(index, piece);
      }
    };
    const auto generated = with_memory_for(
        fmt::format("{} texts at once", batch.size()), "lower --batch-size",
        [&] { return generate(*loaded.model, *tokenizer, batch, sampling, write); });
    if (!options.as_json) {
      stream.finish();
    }
    for (size_t i = 0; options.as_json && i < batch.size(); ++i) {
      print_json(batch[i], generated[i]);
    }
  }
  return ExitCode::kFinished;
}

}  // namespace

void add_generate_command(CLI::App& program, Command& chosen) {
  auto options = std::make_shared<Options>();
  SamplingOptions& sampling = options->sampling;
  CLI::App* command =
      add_command(program, "generate", "continue texts with a trained model",
                  "switchyard generate runs/quickstart --prompt \"KING HENRY.\" --temperature 0.7");
  command
      ->add_option("MODEL", options->model, "run directory, checkpoint or Hugging Face directory")
      ->required();
  command->add_option("--tokenizer", options->tokenizer, "by default the one the model comes with");
  command
      ->add_option("--precision", options->precision,
                   "number format to compute in; by default that of its training, fp32 for others")
      ->check(CLI::IsMember(word_list(kPrecisionWords)));
  command->add_option("--prompt", options->prompts, "text to continue; may be given several times")
      ->expected(1)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  command->add_option("--prompts", options->prompt_file,
                      "file of texts to continue: one per line, or .jsonl");
  command->add_option("--key", options->key, "of the text in a line of .jsonl")
      ->capture_default_str();
  command->add_option("--max-tokens", sampling.max_tokens, "new tokens at most")
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 40))
      ->capture_default_str();
  command->add_option("--temperature", sampling.temperature, "0 is greedy, 1 the model's own odds")
      ->check(number_in(0, 100))
      ->capture_default_str();
  command->add_option("--top-k", sampling.top_k, "draw from the k likeliest tokens; 0: from all")
      ->check(CLI::Range(int64_t{0}, int64_t{1} << 40))
      ->capture_default_str();
  command
      ->add_option("--top-p", sampling.top_p,
                   "draw from the likeliest tokens that together reach this probability")
      ->check(number_in(0, 1))
      ->capture_default_str();
  command->add_option("--seed", sampling.seed, "another seed, another text")
      ->check(CLI::Range(int64_t{0}, std::numeric_limits<int64_t>::max()))
      ->capture_default_str();
  command->add_flag("--ignore-eos", sampling.ignore_end, "go on after an end of document");
  command->add_flag("--json", options->as_json, "one JSON object per prompt, when it is done");
  command->add_option("--batch-size", options->batch_size, "prompts continued at once")
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 20))
      ->capture_default_str();
  command->callback([options, command, &chosen] {
    chosen = [options, command] {
      check_option_has_files(*command, "--key", ".jsonl", {options->prompt_file});
      return generate_text(*options);
    };
  });
}

}  // namespace switchyard
