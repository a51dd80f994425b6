#pragma once

#include <string>

namespace switchyard {

struct ProgramResult {
  int exit_code;       // 128 + its number when a signal ended it, as shells say
  std::string output;  // standard output and errors together, unless `words` redirect them
};

// Runs the built program with `words` through the shell: what a user types, and what comes back.
ProgramResult run_program(const std::string& words);

// The same with variables of the environment set for the first program of `words`: "RANK=0
// WORLD_SIZE=2".
ProgramResult run_program_with(const std::string& variables, const std::string& words);

// Where the program is, for words that start it once more.
std::string program_path();

// The version that it must tell.
std::string program_version();

}  // namespace switchyard
