#include "command_line.h"

#include <algorithm>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "base/error.h"
#include "commands.h"
#include "config/suggest.h"
#include "data/text_source.h"

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

CLI::Validator number_in(double smallest, double largest) {
  return {[smallest, largest](const std::string& text) {
            double value = 0;
            const bool is_number = CLI::detail::lexical_cast(text, value);
            const bool is_inside = is_number && value >= smallest && value <= largest;
            return is_inside
                       ? std::string()
                       : fmt::format("{} is no number from {} to {}", text, smallest, largest);
          },
          fmt::format("FLOAT in [{} - {}]", smallest, largest)};
}

void check_option_has_files(const CLI::App& command, const std::string& option,
                            const std::string& ending, const std::vector<std::string>& files) {
  const bool has_some = std::any_of(files.begin(), files.end(), [&](const std::string& file) {
    return uncompressed_name(file).ends_with(ending);
  });
  check<ConfigError>(has_some || command.count(option) == 0,
                     "{} has no effect: it is for {} files, and none is given", option, ending);
}

CLI::Option* add_overrides(CLI::App& command, std::vector<std::string>& overrides) {
  return command.add_option("overrides", overrides, "settings to change: section.key=value ...");
}

}  // namespace switchyard
