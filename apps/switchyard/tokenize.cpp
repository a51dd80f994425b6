#include <charconv>
#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "base/error.h"
#include "base/log.h"
#include "commands.h"
#include "data/tokenize_files.h"
#include "data/tokenizer.h"
#include "train/progress.h"

namespace switchyard {
namespace {

struct Options {
  std::vector<std::string> files;
  std::string tokenizer = "bytes";
  std::string token_type = "auto";
  std::string end_of_document;
  TokenizeOptions how;
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

// On a terminal one line, redrawn ten times a second; elsewhere a line every half minute.
class TokenizeLine {
 public:
  ~TokenizeLine() {
    if (screen_.is_terminal) {
      screen_.redraw("");
    }
  }

  void update(const TokenizeProgress& progress) {
    const double now = now_s();
    if (now - shown_s_ < (screen_.is_terminal ? 0.1 : 30)) {
      return;
    }
    shown_s_ = now;
    const std::string line = format_line(progress, now - start_s_);
    if (screen_.is_terminal) {
      screen_.redraw(line);
    } else {
      screen_.add_line(line);
    }
  }

 private:
  ProgressScreen screen_ = ProgressScreen::standard_error();
  double start_s_ = now_s();
  double shown_s_ = start_s_;
};

std::optional<int64_t> end_of_document(const std::string& text) {
  if (text.empty()) {
    return std::nullopt;
  }
  if (text == "none") {
    return TokenizeOptions::kNoEnd;
  }
  int64_t id = 0;
  const char* end = text.data() + text.size();
  const auto read = std::from_chars(text.data(), end, id);
  check<ConfigError>(read.ec == std::errc() && read.ptr == end && id >= 0,
                     "--end-of-document is {}, expected an id or none", text);
  return id;
}

ExitCode tokenize(const Options& options) {
  const auto tokenizer = make_tokenizer(options.tokenizer);
  TokenizeOptions how = options.how;
  how.end_of_document = end_of_document(options.end_of_document);
  if (options.token_type != "auto") {
    how.token_type = options.token_type == "uint16" ? TokenType::kUint16 : TokenType::kInt32;
  }
  const double start_s = now_s();
  TokenizeResult made;
  {
    TokenizeLine line;
    made = tokenize_files(options.files, *tokenizer, how,
                          [&](const TokenizeProgress& progress) { line.update(progress); });
  }
  const double seconds = now_s() - start_s;
  fmt::print("{}: {} documents, {} tokens\n", how.prefix, made.sidecar.num_documents,
             made.sidecar.num_tokens);
  if (made.totals.bad_lines > 0) {
    fmt::print("{} lines without a text were left out\n", made.totals.bad_lines);
  }
  if (made.totals.empty_documents > 0) {
    fmt::print("{} empty documents were left out\n", made.totals.empty_documents);
  }
  if (constexpr double kWorthSaying = 1; seconds > kWorthSaying) {
    log_info("{}B in {}, {}B/s", format_count(static_cast<double>(made.totals.num_bytes)),
             format_duration(seconds),
             format_count(static_cast<double>(made.totals.num_bytes) / seconds));
  }
  return ExitCode::kFinished;
}

}  // namespace

void add_tokenize_command(CLI::App& program, Command& chosen) {
  auto options = std::make_shared<Options>();
  TokenizeOptions& how = options->how;
  CLI::App* command =
      add_command(program, "tokenize", "turn text files into a data set to train on",
                  "switchyard tokenize books/*.txt --tokenizer bytes --out data/books");
  command
      ->add_option("FILES", options->files,
                   ".txt, each one document, or .jsonl, one document per line; also as .gz or .zst")
      ->required();
  command
      ->add_option("--tokenizer", options->tokenizer,
                   "as data.tokenizer: bytes, or a tokenizer's file or folder")
      ->capture_default_str();
  command
      ->add_option("--out", how.prefix,
                   "prefix of the data set: PREFIX.bin, PREFIX.idx and PREFIX.json are written")
      ->required();
  command->add_flag("--force", how.overwrite, "replace a data set that is there already");
  command->add_option("--key", how.key, "of the text in a line of .jsonl")->capture_default_str();
  command->add_flag("--skip-bad-lines", how.skip_bad_lines,
                    "leave out lines of .jsonl that hold no text, and count them");
  command->add_flag("--split-lines", how.split_lines, "each line of a .txt file is a document");
  command->add_option("--end-of-document", options->end_of_document,
                      "id that ends each document, or none; by default the tokenizer's");
  command->add_option("--token-type", options->token_type, "auto: uint16 where the ids fit")
      ->check(CLI::IsMember({"auto", "uint16", "int32"}))
      ->capture_default_str();
  command->add_option("--threads", how.num_threads, "0: one per core")
      ->check(CLI::Range(int64_t{0}, int64_t{4096}))
      ->capture_default_str();
  command->callback([options, command, &chosen] {
    chosen = [options, command] {
      check_option_has_files(*command, "--key", ".jsonl", options->files);
      check_option_has_files(*command, "--skip-bad-lines", ".jsonl", options->files);
      check_option_has_files(*command, "--split-lines", ".txt", options->files);
      return tokenize(*options);
    };
  });
}

}  // namespace switchyard
