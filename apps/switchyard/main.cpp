#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <exception>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>

#include <CLI/CLI.hpp>

#include "base/error.h"
#include "base/exit_code.h"
#include "base/mapped_file.h"
#include "base/out_of_memory.h"
#include "command_line.h"
#include "commands.h"
#include "openmp_waiting.h"

namespace switchyard {
namespace {

constexpr std::string_view kBugAdvice =
    "this is a bug: please report the command and the lines above";

// One `error: ` per line: a refused configuration has a line for each mistake.
void print_error(std::string_view message) {
  while (!message.empty()) {
    const size_t end = std::min(message.find('\n'), message.size());
    const std::string line = fmt::format("error: {}\n", message.substr(0, end));
    std::fputs(line.c_str(), stderr);  // does not throw when nobody listens
    message.remove_prefix(std::min(end + 1, message.size()));
  }
}

// Also in docs/exit_codes.md.
std::string exit_codes() {
  constexpr std::array<std::pair<ExitCode, std::string_view>, 8> kMeanings = {{
      {ExitCode::kFinished, "finished"},
      {ExitCode::kBug, "a bug of this program: please report it"},
      {ExitCode::kRefusedConfig, "settings or a command line that cannot work"},
      {ExitCode::kBadFile, "a file is missing, damaged, of another kind, or cannot be written"},
      {ExitCode::kLostPeer, "another rank died, hung or disagreed"},
      {ExitCode::kDiverged, "the loss or a gradient stopped being finite"},
      {ExitCode::kStoppedSaved, "stopped by a signal, after the step, with a checkpoint"},
      {ExitCode::kOutOfMemory, "out of memory"},
  }};
  std::string text = "Exit codes:";
  for (const auto& [code, meaning] : kMeanings) {
    text += fmt::format("\n  {}  {}", static_cast<int>(code), meaning);
  }
  return text;
}

void flush_output() {
  const bool written = std::fflush(stdout) == 0 && std::ferror(stdout) == 0;
  check<FileError>(written, "cannot write to standard output: {}", std::strerror(errno));
}

ExitCode run_command(const Command& command) {
  try {
    const ExitCode code = command();
    flush_output();
    return code;
  } catch (const Error& error) {
    print_error(error.what());
    if (error.exit_code() == ExitCode::kBug) {
      print_error(kBugAdvice);
    }
    return error.exit_code();
  } catch (const std::system_error& error) {  // the machine refused: a full disk, a forbidden path
    print_error(std::ferror(stdout) != 0
                    ? fmt::format("cannot write to standard output: {}", error.code().message())
                    : error.what());
    return ExitCode::kBadFile;
  } catch (const std::exception& error) {
    if (const auto asked = memory_asked_for(error)) {
      print_error(fmt::format("out of memory{}; {}",
                              asked->empty() ? "" : fmt::format(" ({} at once)", *asked),
                              "lower what was asked for, or use a machine with more"));
      return ExitCode::kOutOfMemory;
    }
    print_error(error.what());
    print_error(kBugAdvice);
    return ExitCode::kBug;
  }
}

ExitCode run_program(int num_words, const char* const* words) {
  CLI::App program("Trains and converts Mixture-of-Experts language models.", "switchyard");
  program.set_version_flag("--version", "switchyard " SWITCHYARD_VERSION);
  program.require_subcommand(1);
  program.footer(
      "Example:\n  switchyard train recipes/quickstart.yaml optimizer.lr=1e-3\n"
      "Each command has a --help of its own.\n\n" +
      exit_codes());

  Command chosen;
  add_train_command(program, chosen);
  add_launch_command(program, chosen);
  add_generate_command(program, chosen);
  add_eval_command(program, chosen);
  add_forward_command(program, chosen);
  add_import_command(program, chosen);
  add_export_command(program, chosen);
  add_tokenize_command(program, chosen);
  add_inspect_command(program, chosen);
  add_selfcheck_command(program, chosen);
  add_config_commands(program, chosen);

  try {
    program.parse(num_words, words);
  } catch (const CLI::Success& request) {  // --help or --version
    program.exit(request);
    return ExitCode::kFinished;
  } catch (const CLI::ParseError& error) {
    print_error(explain_mistake(program, error));
    return ExitCode::kRefusedConfig;
  }
  return run_command(chosen);
}

}  // namespace
}  // namespace switchyard

int main(int argc, char** argv) {
  switchyard::give_waiting_cores_away(argv);
  switchyard::explain_lost_pages();
  return static_cast<int>(switchyard::run_program(argc, argv));
}
