#pragma once

#include <string>

#include <CLI/CLI.hpp>

namespace switchyard {

// One line for a command line that cannot be understood: which command, which word, and what was
// probably meant. `error` is what parsing `program` threw.
std::string explain_mistake(const CLI::App& program, const CLI::ParseError& error);

}  // namespace switchyard
