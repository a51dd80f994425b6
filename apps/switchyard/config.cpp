#include <cstdio>
#include <memory>

#include <fmt/format.h>

#include "commands.h"
#include "config/settings.h"

namespace switchyard {
namespace {

ExitCode print_keys() {
  for (const Setting& setting : settings()) {
    fmt::print("{}: {}\n", setting.name, setting.type);
  }
  return ExitCode::kFinished;
}

}  // namespace

void add_config_commands(CLI::App& program, Command& chosen) {
  CLI::App* config = add_command(program, "config", "explain the settings",
                                 "switchyard config show recipes/quickstart.yaml moe.top_k=4");
  config->require_subcommand(1);
  add_command(*config, "keys", "every setting: type, range, default, meaning",
              "switchyard config keys")
      ->callback([&chosen] { chosen = print_keys; });
}

}  // namespace switchyard
