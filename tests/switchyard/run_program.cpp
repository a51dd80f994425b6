#include "switchyard/run_program.h"

#include <cstdio>
#include <stdexcept>

#include <sys/wait.h>

namespace switchyard {

ProgramResult run_program(const std::string& words) {
  return run_program_with("", words);
}

ProgramResult run_program_with(const std::string& variables, const std::string& words) {
  const std::string line = "{ " + variables + " " + program_path() + " " + words + "\n} 2>&1";
  FILE* pipe = popen(line.c_str(), "r");
  if (pipe == nullptr) {
    throw std::runtime_error("cannot start " + line);
  }
  std::string output;
  for (int letter = std::fgetc(pipe); letter != EOF; letter = std::fgetc(pipe)) {
    output += static_cast<char>(letter);
  }
  const int status = pclose(pipe);
  return {WIFEXITED(status) ? WEXITSTATUS(status) : -1, output};
}

std::string program_path() {
  return SWITCHYARD_PROGRAM;
}

std::string program_version() {
  return SWITCHYARD_VERSION;
}

}  // namespace switchyard
