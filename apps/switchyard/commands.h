#pragma once

#include <functional>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>

#include "base/exit_code.h"

namespace switchyard {

// What the chosen subcommand does. It runs after the whole command line has been read, prints its
// result on standard output, and throws an Error for anything the user has to know about.
using Command = std::function<ExitCode()>;

// --- One function per subcommand, each in the file of its name; main.cpp calls them. Each adds its
// --- options to `program` and sets `chosen` when its subcommand is on the command line.

void add_config_commands(CLI::App& program, Command& chosen);
void add_eval_command(CLI::App& program, Command& chosen);
void add_export_command(CLI::App& program, Command& chosen);
void add_forward_command(CLI::App& program, Command& chosen);
void add_generate_command(CLI::App& program, Command& chosen);
void add_import_command(CLI::App& program, Command& chosen);
void add_inspect_command(CLI::App& program, Command& chosen);
void add_launch_command(CLI::App& program, Command& chosen);
void add_selfcheck_command(CLI::App& program, Command& chosen);
void add_tokenize_command(CLI::App& program, Command& chosen);
void add_train_command(CLI::App& program, Command& chosen);

// --- For those files

// A subcommand with an example in its --help.
CLI::App* add_command(CLI::App& parent, const std::string& name, const std::string& description,
                      const std::string& example);

// For an option: a number from `smallest` to `largest`. CLI::Range lets nan through.
CLI::Validator number_in(double smallest, double largest);

// Throws ConfigError for an option that was given though it has no effect: it is for
// files with this ending (and .gz or .zst behind it), and none of `files` is one.
void check_option_has_files(const CLI::App& command, const std::string& option,
                            const std::string& ending, const std::vector<std::string>& files);

// The words after CONFIG that change settings: `section.key=value ...`.
CLI::Option* add_overrides(CLI::App& command, std::vector<std::string>& overrides);

}  // namespace switchyard
