#include "supervise/child_process.h"

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <string_view>

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/error.h"

namespace switchyard {
namespace {

constexpr int kNotStarted = 127;  // as shells say

std::vector<std::string> environment_with(const Variables& variables) {
  std::vector<std::string> entries;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string_view text = *entry;
    const std::string_view name = text.substr(0, text.find('='));
    if (std::none_of(variables.begin(), variables.end(),
                     [&](const auto& variable) { return variable.first == name; })) {
      entries.emplace_back(text);
    }
  }
  for (const auto& [name, value] : variables) {
    entries.push_back(fmt::format("{}={}", name, value));
  }
  return entries;
}

std::vector<char*> pointers_to(std::vector<std::string>& texts) {
  std::vector<char*> pointers;
  for (std::string& text : texts) {
    pointers.push_back(text.data());
  }
  pointers.push_back(nullptr);
  return pointers;
}

struct Pipe {
  Pipe() {
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0) {
      throw FileError(fmt::format("cannot start a process: {}", std::strerror(errno)));
    }
    read_end = ends[0];
    write_end = ends[1];
    fcntl(read_end, F_SETFL, O_NONBLOCK);
  }
  ~Pipe() {
    close(write_end);
    if (read_end >= 0) {
      close(read_end);
    }
  }
  Pipe(const Pipe&) = delete;
  Pipe& operator=(const Pipe&) = delete;

  int release() { return std::exchange(read_end, -1); }

  int read_end = -1;
  int write_end = -1;
};

// In the new process, between fork and exec: other threads of the parent may have held any lock, so
// only calls that take none.
[[noreturn]] void become(const char* program, char* const* words, char* const* variables,
                         const Pipe& output, const Pipe& errors, pid_t parent) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) {  // it died before that was said
    _exit(kNotStarted);
  }
  setpgid(0, 0);
  const int nothing = open("/dev/null", O_RDONLY);
  dup2(nothing, STDIN_FILENO);
  dup2(output.write_end, STDOUT_FILENO);
  dup2(errors.write_end, STDERR_FILENO);
  close_range(STDERR_FILENO + 1, ~0U, 0);  // sockets of libraries among them
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  execve(program, words, variables);
  _exit(kNotStarted);
}

}  // namespace

std::string describe(const ProcessEnd& end) {
  return end.signal != 0
             ? fmt::format("was killed by signal {} ({})", end.signal, strsignal(end.signal))
             : fmt::format("ended with code {}", end.code);
}

ChildProcess::ChildProcess(const std::string& program, const std::vector<std::string>& words,
                           const Variables& variables) {
  Pipe output;
  Pipe errors;
  std::vector<std::string> arguments = words;
  std::vector<std::string> environment = environment_with(variables);
  const std::vector<char*> argument_pointers = pointers_to(arguments);
  const std::vector<char*> environment_pointers = pointers_to(environment);
  const pid_t parent = getpid();
  id_ = fork();
  if (id_ == 0) {
    become(program.c_str(), argument_pointers.data(), environment_pointers.data(), output, errors,
           parent);
  }
  if (id_ < 0) {
    throw FileError(fmt::format("cannot start a process: {}", std::strerror(errno)));
  }
  output_ = output.release();
  errors_ = errors.release();
}

ChildProcess::~ChildProcess() {
  if (!end_) {
    signal(SIGKILL);
    waitpid(id_, nullptr, 0);
  }
  close(output_);
  close(errors_);
}

void ChildProcess::signal(int number) const {
  if (!end_) {
    kill(id_, number);
  }
}

std::optional<ProcessEnd> ChildProcess::poll_end() {
  int status = 0;
  if (!end_ && waitpid(id_, &status, WNOHANG) == id_) {
    end_ = WIFSIGNALED(status) ? ProcessEnd{.code = 0, .signal = WTERMSIG(status)}
                               : ProcessEnd{.code = WEXITSTATUS(status), .signal = 0};
  }
  return end_;
}

}  // namespace switchyard
