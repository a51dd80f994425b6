#include "command_line.h"

#include <string>
#include <vector>

#include <fmt/format.h>

#include "commands.h"
#include "config/suggest.h"

namespace switchyard {
namespace {

// The innermost subcommand that was recognised: a mistake belongs to it.
const CLI::App& innermost(const CLI::App& program) {
  const std::vector<CLI::App*> parsed = program.get_subcommands();
  return parsed.empty() ? program : innermost(*parsed.back());
}

std::string full_name(const CLI::App& app) {
  const CLI::App* parent = app.get_parent();
  return parent == nullptr ? app.get_name() : full_name(*parent) + " " + app.get_name();
}

std::vector<std::string> command_names(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::App* command : app.get_subcommands([](const CLI::App*) { return true; })) {
    names.push_back(command->get_name());
  }
  return names;
}

std::vector<std::string> option_names(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::Option* option : app.get_options()) {
    for (const std::string& name : option->get_lnames()) {
      names.push_back(name);
    }
  }
  return names;
}

std::string unknown_option(const CLI::App& app, const std::string& word) {
  const std::string name = word.substr(std::min(word.find_first_not_of('-'), word.size()));
  if (name.find('.') < name.find('=')) {
    return fmt::format("{}: unknown option {}; settings are written without dashes: {}",
                       full_name(app), word, name);
  }
  const std::string nearest = nearest_name(name.substr(0, name.find('=')), option_names(app));
  return fmt::format("{}: unknown option {}; {}", full_name(app), word,
                     nearest.empty() ? fmt::format("see {} --help", full_name(app))
                                     : fmt::format("did you mean --{}?", nearest));
}

std::string unknown_word(const CLI::App& app, const std::string& word) {
  const std::vector<std::string> commands = command_names(app);
  const std::string nearest = nearest_name(word, commands);
  return fmt::format("{}: {} {}; {}", full_name(app),
                     commands.empty() ? "unexpected word" : "unknown command", word,
                     nearest.empty() ? fmt::format("see {} --help", full_name(app))
                                     : fmt::format("did you mean {}?", nearest));
}

}  // namespace

std::string explain_mistake(const CLI::App& program, const CLI::ParseError& error) {
  const CLI::App& app = innermost(program);
  const std::vector<std::string> unknown = program.remaining(/*recurse=*/true);
  if (unknown.empty()) {
    return fmt::format("{}: {}; see {} --help", full_name(app), error.what(), full_name(app));
  }
  const std::string& word = unknown.front();
  return word.rfind('-', 0) == 0 ? unknown_option(app, word) : unknown_word(app, word);
}

CLI::App* add_command(CLI::App& parent, const std::string& name, const std::string& description,
                      const std::string& example) {
  CLI::App* command = parent.add_subcommand(name, description);
  command->footer("Example:\n  " + example);
  return command;
}

CLI::Option* add_overrides(CLI::App& command, std::vector<std::string>& overrides) {
  return command.add_option("overrides", overrides, "settings to change: section.key=value ...");
}

}  // namespace switchyard
