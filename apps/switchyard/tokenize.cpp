#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "commands.h"
#include "data/tokenize_files.h"
#include "data/tokenizer.h"
#include "train/progress.h"

namespace switchyard {
namespace {

struct TokenizeOptions {
  std::vector<std::string> files;
  std::string tokenizer = "bytes";
  std::string prefix;
  bool overwrite = false;
};

double now_s() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

std::string format_line(const TokenizeProgress& progress, double seconds) {
  const double bytes_per_s = static_cast<double>(progress.bytes_done) / seconds;
  const auto bytes_left = static_cast<double>(progress.num_bytes - progress.bytes_done);
  return fmt::format("{}/{} files | {} tokens | {}B/s | {} left", progress.files_done,
                     progress.num_files, format_count(static_cast<double>(progress.tokens)),
                     format_count(bytes_per_s), format_duration(bytes_left / bytes_per_s));
}

// On a terminal one line, redrawn ten times a second; nothing elsewhere.
class TokenizeLine {
 public:
  ~TokenizeLine() {
    if (screen_.is_terminal) {
      screen_.redraw("");
    }
  }

  void update(const TokenizeProgress& progress) {
    const double now = now_s();
    if (screen_.is_terminal && now - shown_s_ > 0.1) {
      screen_.redraw(format_line(progress, now - start_s_));
      shown_s_ = now;
    }
  }

 private:
  ProgressScreen screen_ = ProgressScreen::standard_error();
  double start_s_ = now_s();
  double shown_s_ = start_s_;
};

ExitCode tokenize(const TokenizeOptions& options) {
  const auto tokenizer = make_tokenizer(options.tokenizer);
  DatasetSidecar made;
  {
    TokenizeLine line;
    made = tokenize_files(options.files, *tokenizer, options.prefix, options.overwrite,
                          [&](const TokenizeProgress& progress) { line.update(progress); });
  }
  fmt::print("{}: {} documents, {} tokens\n", options.prefix, made.num_documents, made.num_tokens);
  return ExitCode::kFinished;
}

}  // namespace

void add_tokenize_command(CLI::App& program, Command& chosen) {
  auto options = std::make_shared<TokenizeOptions>();
  CLI::App* command =
      add_command(program, "tokenize", "turn text files into a data set to train on",
                  "switchyard tokenize books/*.txt --tokenizer bytes --out data/books");
  command->add_option("FILES", options->files, ".txt files, each of them one document")->required();
  command->add_option("--tokenizer", options->tokenizer, "bytes: one token per byte")
      ->capture_default_str();
  command
      ->add_option("--out", options->prefix,
                   "prefix of the data set: PREFIX.bin, PREFIX.idx and PREFIX.json are written")
      ->required();
  command->add_flag("--force", options->overwrite, "replace a data set that is there already");
  command->callback([options, &chosen] { chosen = [options] { return tokenize(*options); }; });
}

}  // namespace switchyard
