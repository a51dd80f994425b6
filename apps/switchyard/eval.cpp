#include <algorithm>
#include <cmath>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>
#include <unistd.h>

#include "base/error.h"
#include "base/out_of_memory.h"
#include "commands.h"
#include "config/values.h"
#include "data/document_reader.h"
#include "data/evaluation_data.h"
#include "data/tokenize_files.h"
#include "train/evaluate.h"
#include "train/trainable_model.h"

namespace switchyard {
namespace {

namespace fs = std::filesystem;

struct Options {
  std::string model;
  std::vector<std::string> data;
  std::string key = "text";
  std::string tokenizer;
  std::string precision;
  int64_t sequence_length = 0;
  int64_t batch_size = 8;
  bool as_json = false;
};

// Data sets made of text files for one evaluation, and removed after it.
class TokenizedText {
 public:
  TokenizedText()
      : folder_(fs::temp_directory_path() / fmt::format("switchyard_eval_{}", getpid())) {}
  ~TokenizedText() {
    std::error_code ignored;
    fs::remove_all(folder_, ignored);
  }
  TokenizedText(const TokenizedText&) = delete;
  TokenizedText& operator=(const TokenizedText&) = delete;

  // The prefix of what was made of a text file; another prefix as it is.
  std::string prefix_of(const std::string& path, const std::string& key,
                        const Tokenizer& tokenizer) {
    if (!text_kind(path, false) || !fs::exists(path)) {
      return path;
    }
    TokenizeOptions options;
    options.prefix = (folder_ / std::to_string(count_++)).string();
    options.key = key;
    tokenize_files({path}, tokenizer, options, [](const TokenizeProgress&) {});
    return options.prefix;
  }

 private:
  fs::path folder_;
  int64_t count_ = 0;
};

struct Result {
  EvalOutcome outcome;
  int64_t bytes = 0;
  int64_t sequence_length = 0;

  double loss() const { return outcome.loss_sum / outcome.loss_weight; }
  std::optional<double> bits_per_byte() const {
    return bytes > 0 ? std::optional(outcome.loss_sum / std::log(2.0) / static_cast<double>(bytes))
                     : std::nullopt;
  }
};

// That of its training. A model that comes from elsewhere does not say it; most take this much.
int64_t usual_sequence_length(const Config& config) {
  constexpr int64_t kUsual = 2048;
  const int64_t longest = config.model.max_position > 0 ? config.model.max_position : kUsual;
  return config.data.sequence_length > 0 ? config.data.sequence_length : std::min(kUsual, longest);
}

void print(const Result& result, const LoadedModel& loaded) {
  fmt::print("loss           {:.6f} nats per token\n", result.loss());
  fmt::print("perplexity     {:.4f}\n", std::exp(result.loss()));
  if (const auto bits = result.bits_per_byte()) {
    fmt::print("bits per byte  {:.6f}, over {} bytes\n", *bits, result.bytes);
  } else {
    fmt::print("bits per byte  none\n");
  }
  fmt::print("tokens         {:.0f}, each once, in sequences of up to {}\n",
             result.outcome.loss_weight, result.sequence_length);
  fmt::print("model          {}, step {}\n", loaded.path.string(), loaded.source.record.step);
}

void print_json(const Result& result, const LoadedModel& loaded) {
  nlohmann::ordered_json line;
  line["loss"] = result.loss();
  line["loss_sum"] = result.outcome.loss_sum;
  line["loss_weight"] = result.outcome.loss_weight;
  line["perplexity"] = std::exp(result.loss());
  const auto bits = result.bits_per_byte();
  line["bits_per_byte"] = bits ? nlohmann::ordered_json(*bits) : nlohmann::ordered_json(nullptr);
  line["bytes"] = result.bytes;
  line["sequence_length"] = result.sequence_length;
  line["model"] = loaded.path.string();
  line["step"] = loaded.source.record.step;
  fmt::print("{}\n", line.dump());
}

ExitCode evaluate_model(const Options& options) {
  const std::unique_ptr<Groups> groups = Groups::single();
  LoadModelOptions load;
  if (!options.precision.empty()) {
    read_value(RawValue{{options.precision}, false}, kPrecisionWords, load.precision.emplace());
  }
  const LoadedModel loaded = load_model(options.model, *groups, load);
  const int64_t sequence_length =
      options.sequence_length > 0 ? options.sequence_length : usual_sequence_length(loaded.config);
  const std::unique_ptr<Tokenizer> tokenizer = loaded.make_tokenizer(options.tokenizer);
  TokenizedText text;
  std::vector<std::string> prefixes;
  for (const std::string& path : options.data) {
    prefixes.push_back(text.prefix_of(path, options.key, *tokenizer));
  }
  EvaluationData data("--data", prefixes, *tokenizer, sequence_length,
                      {.documents = document_options(loaded.config.data),
                       .vocab_size = loaded.config.model.vocab_size,
                       .is_tokenizer_stated = true});
  data.drop_needless_padding();
  Result result;
  result.sequence_length = sequence_length;
  const int64_t batch_size = std::min(options.batch_size, data.num_sequences());
  result.outcome = with_memory_for(
      fmt::format("{} sequences of {} tokens at once", batch_size, data.sequence_length()),
      "lower --batch-size or --sequence-length",
      [&] { return evaluate(*loaded.model, data, batch_size, 0, *groups); });
  result.bytes = data.count_label_bytes(*tokenizer);
  if (options.as_json) {
    print_json(result, loaded);
  } else {
    print(result, loaded);
  }
  return ExitCode::kFinished;
}

}  // namespace

void add_eval_command(CLI::App& program, Command& chosen) {
  auto options = std::make_shared<Options>();
  CLI::App* command =
      add_command(program, "eval", "token-weighted loss on held-out data",
                  "switchyard eval runs/quickstart --data .deps/text/heldout_bytes");
  command
      ->add_option("MODEL", options->model, "run directory, checkpoint or Hugging Face directory")
      ->required();
  command->add_option("--tokenizer", options->tokenizer, "by default the one the model comes with");
  command
      ->add_option("--data", options->data,
                   "prefixes of tokenized data, or text files (.txt, .jsonl, and as .gz or .zst)")
      ->required();
  command->add_option("--key", options->key, "of the text in a line of .jsonl")
      ->capture_default_str();
  command
      ->add_option(
          "--sequence-length", options->sequence_length,
          "tokens of one sequence; 0: as in training, for a Hugging Face directory 2048 or "
          "its max_position_embeddings where that is less")
      ->check(CLI::Range(int64_t{0}, int64_t{1} << 40))
      ->capture_default_str();
  command
      ->add_option("--precision", options->precision,
                   "number format to compute in; by default that of its training, fp32 for others")
      ->check(CLI::IsMember(word_list(kPrecisionWords)));
  command->add_option("--batch-size", options->batch_size, "sequences at once")
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 40))
      ->capture_default_str();
  command->add_flag("--json", options->as_json, "one JSON object");
  command->callback([options, command, &chosen] {
    chosen = [options, command] {
      check_option_has_files(*command, "--key", ".jsonl", options->data);
      return evaluate_model(*options);
    };
  });
}

}  // namespace switchyard
