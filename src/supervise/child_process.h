#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <sys/types.h>

namespace switchyard {

// How a process ended: by itself with a code, or by a signal.
struct ProcessEnd {
  int code = 0;
  int signal = 0;  // 0: by itself

  bool operator==(const ProcessEnd&) const = default;
};

// "ended with code 3", "was killed by signal 9 (Killed)"
std::string describe(const ProcessEnd& end);

using Variables = std::vector<std::pair<std::string, std::string>>;

// A process that this one started. What it prints comes through pipes, its standard input is empty.
// It has a process group of its own, so that Ctrl-C in a terminal reaches this process alone; and
// it is killed when this process ends, however that ends: nothing stays behind.
class ChildProcess {
 public:
  // Runs `program` with `words` (the first is its name) and this process's environment, in which
  // `variables` are set. Throws FileError when the system refuses to start a process; a program
  // that is not there ends with code 127. Made and used by one thread.
  ChildProcess(const std::string& program, const std::vector<std::string>& words,
               const Variables& variables);
  ~ChildProcess();  // kills it
  ChildProcess(const ChildProcess&) = delete;
  ChildProcess& operator=(const ChildProcess&) = delete;

  pid_t id() const { return id_; }
  int output() const { return output_; }  // read ends, not blocking
  int errors() const { return errors_; }

  void signal(int number) const;  // nothing once it has ended

  // How it ended, if it has. Does not wait.
  std::optional<ProcessEnd> poll_end();

 private:
  pid_t id_ = -1;
  int output_ = -1;
  int errors_ = -1;
  std::optional<ProcessEnd> end_;
};

}  // namespace switchyard
