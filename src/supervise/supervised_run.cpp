#include "supervise/supervised_run.h"

#include <csignal>

#include "base/error.h"
#include "base/log.h"
#include "supervise/attempt.h"
#include "supervise/restart_policy.h"

namespace switchyard {
namespace {

// The variables that torchrun sets for each rank.
Variables variables_of(const SupervisedRun& run, int64_t num_ranks, int64_t local_rank,
                       int64_t attempt) {
  return {{"RANK", std::to_string(run.node * num_ranks + local_rank)},
          {"WORLD_SIZE", std::to_string(run.num_nodes * num_ranks)},
          {"LOCAL_RANK", std::to_string(local_rank)},
          {"LOCAL_WORLD_SIZE", std::to_string(num_ranks)},
          {"GROUP_RANK", std::to_string(run.node)},
          {"MASTER_ADDR", run.address},
          {"MASTER_PORT", std::to_string(run.port)},
          {"TORCHELASTIC_USE_AGENT_STORE", "True"},
          {"TORCHELASTIC_RESTART_COUNT", std::to_string(attempt)}};
}

Team team_of(const SupervisedRun& run, const RankCommand& command, int64_t attempt) {
  Team team{.program = run.program, .words = command.words, .variables = {}, .first_rank = 0};
  team.first_rank = run.node * command.num_ranks;
  for (int64_t rank = 0; rank < command.num_ranks; ++rank) {
    team.variables.push_back(variables_of(run, command.num_ranks, rank, attempt));
  }
  return team;
}

bool has_code(const RankEnd& end, ExitCode code) {
  return end.end.signal == 0 && end.end.code == static_cast<int>(code);
}

// What the same ranks would refuse or run into again.
bool is_lasting(const RankEnd& cause) {
  return has_code(cause, ExitCode::kRefusedConfig) || has_code(cause, ExitCode::kBadFile) ||
         has_code(cause, ExitCode::kDiverged) || has_code(cause, ExitCode::kOutOfMemory);
}

std::string describe_cause(const RankEnd& cause) {
  return cause.last_error.empty() ? describe(cause)
                                  : fmt::format("{}: {}", describe(cause), cause.last_error);
}

Failure failure_of(const RankEnd& cause, const std::string& checkpoint) {
  const std::string how = cause.had_to_be_killed ? "hung" : describe(cause.end);
  // Who lost a peer says so with times and ports in it.
  const bool is_own_error = !has_code(cause, ExitCode::kLostPeer);
  return {.rank = cause.rank,
          .how = is_own_error ? how + cause.last_error : how,
          .checkpoint = checkpoint};
}

ExitCode exit_code_of(const RankEnd& cause) {
  return cause.end.signal != 0 ? ExitCode::kLostPeer : static_cast<ExitCode>(cause.end.code);
}

[[noreturn]] void give_up(const RankEnd& cause, const std::string& reason) {
  throw Error(exit_code_of(cause), fmt::format("launch: {}. {}", describe_cause(cause), reason));
}

// As the shell expects of a program that is stopped.
void end_by(int signal) {
  sigset_t only;
  sigemptyset(&only);
  sigaddset(&only, signal);
  std::signal(signal, SIG_DFL);
  raise(signal);
  pthread_sigmask(SIG_UNBLOCK, &only, nullptr);
}

ExitCode code_without_failure(const Attempt& attempt) {
  for (const RankEnd& end : attempt.ends) {
    if (has_code(end, ExitCode::kStoppedSaved)) {
      return ExitCode::kStoppedSaved;
    }
  }
  return ExitCode::kFinished;
}

std::string from_where(const std::string& checkpoint) {
  return checkpoint.empty() ? "from the beginning: there is no checkpoint yet"
                            : "from checkpoint " + checkpoint;
}

// Decides what follows a failure, and says so.
class Restarts {
 public:
  explicit Restarts(const SupervisedRun& run)
      : run_(run), policy_(run.most_restarts, run.most_alike) {}

  // What to run next. Throws Error when nothing is.
  RankCommand after(const RankEnd& cause, const RankCommand& before) {
    if (is_lasting(cause)) {
      give_up(cause, "The ranks are not started again: they would fail in the same way");
    }
    const std::string checkpoint = run_.newest_checkpoint();
    const auto fewer = run_.fewer_ranks(before.num_ranks);
    const auto next = policy_.after(failure_of(cause, checkpoint), fewer.has_value());
    switch (next) {
      case NextAttempt::kNoneLeft:
        give_up(cause, run_.most_restarts == 0
                           ? fmt::format("The same command goes on {}; --restarts lets that "
                                         "happen by itself",
                                         from_where(checkpoint))
                           : fmt::format("All {} restarts (--restarts) are used up. The same "
                                         "command goes on {}",
                                         run_.most_restarts, from_where(checkpoint)));
      case NextAttempt::kNothingIsGained:
        give_up(cause,
                fmt::format("It was the same {} times in a row, with no newer checkpoint than {}: "
                            "another start would gain nothing (--same-failures)",
                            policy_.num_alike(), checkpoint.empty() ? "none" : checkpoint));
      case NextAttempt::kSame:
      case NextAttempt::kFewerRanks:
        break;
    }
    const RankCommand& command = next == NextAttempt::kFewerRanks ? *fewer : before;
    log_warn("launch: {}", describe_cause(cause));
    log_info("launch: restart {} of {}: {} ranks, {}", policy_.num_restarts(), run_.most_restarts,
             command.num_ranks * run_.num_nodes, from_where(checkpoint));
    return command;
  }

 private:
  const SupervisedRun& run_;
  RestartPolicy policy_;
};

}  // namespace

ExitCode run_supervised(const SupervisedRun& run, SignalInbox& inbox) {
  RankOutput output(run.log_folder);
  Restarts restarts(run);
  RankCommand command = run.command;
  for (int64_t number = 0;; ++number) {
    output.begin_attempt(number);
    const Attempt attempt = run_attempt(team_of(run, command, number), output, inbox, run.grace);
    const RankEnd* cause = attempt.first_cause();
    if (cause == nullptr) {
      return code_without_failure(attempt);
    }
    if (attempt.stop_signal != 0) {
      if (cause->end.signal != 0) {
        end_by(attempt.stop_signal);
      }
      give_up(*cause, "It was asked to stop, and does not start the ranks again");
    }
    command = restarts.after(*cause, command);
  }
}

}  // namespace switchyard
