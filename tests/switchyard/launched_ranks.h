#pragma once

#include <chrono>
#include <functional>
#include <string>
#include <vector>

#include <sys/types.h>

#include "supervise/child_process.h"

namespace switchyard {

// A `switchyard launch` under way, whose ranks can be seen and signalled.
class LaunchedRanks {
 public:
  // `words` as for run_program(), split at blanks.
  explicit LaunchedRanks(const std::string& words);

  pid_t launcher() const { return process_.id(); }
  std::vector<pid_t> ranks() const;  // those alive, lowest rank first

  // Waits until `is_true`; false when it has ended or a minute has passed before.
  bool wait_until(const std::function<bool()>& is_true);

  ProcessEnd wait();  // killed after some minutes
  const std::string& output() const { return output_; }

 private:
  bool has_ended();

  ChildProcess process_;
  std::optional<ProcessEnd> end_;
  std::string output_;
};

}  // namespace switchyard
