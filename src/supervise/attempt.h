#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "supervise/child_process.h"
#include "supervise/rank_output.h"
#include "supervise/signal_inbox.h"

namespace switchyard {

// The ranks of one machine, as processes to be started.
struct Team {
  std::string program;
  std::vector<std::string> words;
  std::vector<Variables> variables;  // one per rank: who it is among its peers
  int64_t first_rank = 0;            // number, in the world, of the first one
};

struct RankEnd {
  int64_t rank = 0;  // in the world
  pid_t process = 0;
  ProcessEnd end;
  bool had_to_be_killed = false;  // it did not end after others had failed
  std::string last_error;         // its last line that began with "error: ", without that

  bool has_failed() const;  // it neither finished nor stopped as asked
};

// "rank 2 (process 471) was killed by signal 9 (Killed)"
std::string describe(const RankEnd& end);

// How one start of all ranks went.
struct Attempt {
  std::vector<RankEnd> ends;  // of all ranks, the first to end first
  int stop_signal = 0;        // SIGTERM, SIGINT or SIGHUP, when it was asked to stop

  // The end that explains the others: a rank that was killed, else one with an error of its own,
  // else one that hung, else the first that lost a peer. Null when no rank failed.
  const RankEnd* first_cause() const;
};

// Starts the ranks, passes their lines on, and returns when all have ended. SIGTERM, SIGINT and
// SIGHUP are passed on to all of them; a second one kills them. When one fails, the others have
// `grace` to notice, report and end by themselves; then they are killed. Throws FileError.
Attempt run_attempt(const Team& team, RankOutput& output, SignalInbox& inbox,
                    std::chrono::milliseconds grace);

}  // namespace switchyard
