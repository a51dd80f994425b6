#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/exit_code.h"

namespace switchyard {

class SignalInbox;

// What every rank runs: `program` with `words`.
struct RankCommand {
  int64_t num_ranks = 1;  // on this machine
  std::vector<std::string> words;
};

struct SupervisedRun {
  std::string program;
  RankCommand command;
  int64_t num_nodes = 1;  // machines, each with as many ranks
  int64_t node = 0;       // which of them this is
  std::string address;    // where the ranks meet: served by whoever calls
  uint16_t port = 0;

  int64_t most_restarts = 0;
  int64_t most_alike = 3;                                     // failures in a row
  std::string log_folder;                                     // see RankOutput
  std::chrono::milliseconds grace = std::chrono::seconds(2);  // see run_attempt()

  // The newest checkpoint, in words; asked while no rank runs.
  std::function<std::string()> newest_checkpoint = [] { return std::string(); };
  // The command for fewer ranks than that; nothing when there is none or it may not be.
  std::function<std::optional<RankCommand>(int64_t num_ranks)> fewer_ranks = [](int64_t) {
    return std::nullopt;
  };
};

// Runs the ranks of this machine until all have finished (kFinished) or stopped as asked
// (kStoppedSaved). Starts them all again when one is lost: killed, hung or ended by a bug, but not
// when they refuse their settings or files or have diverged, since they would again. What ranks
// print is passed on; what happens is told in lines on standard error that begin with "launch: ".
// Throws Error with the first cause and its exit code when it gives up; a signal counts as
// kLostPeer. Asked to stop by a signal before the ranks were ready to save, it ends by that signal
// itself. `inbox` must have been made before any other thread of the process.
ExitCode run_supervised(const SupervisedRun& run, SignalInbox& inbox);

}  // namespace switchyard
