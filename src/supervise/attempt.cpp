#include "supervise/attempt.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <memory>
#include <optional>
#include <string_view>

#include <fmt/format.h>
#include <poll.h>
#include <unistd.h>

#include "base/exit_code.h"

namespace switchyard {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr std::string_view kErrorMark = "error: ";

// One rank while it runs: its process and the lines it prints.
class RunningRank {
 public:
  RunningRank(const Team& team, size_t index, RankOutput& output)
      : output_(output), process_(team.program, team.words, team.variables[index]) {
    end_.rank = team.first_rank + static_cast<int64_t>(index);
    end_.process = process_.id();
  }

  int64_t rank() const { return end_.rank; }
  void signal(int number) const { process_.signal(number); }
  void kill() {
    end_.had_to_be_killed = true;
    process_.signal(SIGKILL);
  }

  void add_to(std::vector<pollfd>& watched) const {
    watched.push_back({process_.output(), POLLIN, 0});
    watched.push_back({process_.errors(), POLLIN, 0});
  }

  void pass_lines_on() {
    read_from(process_.output(), output_lines_, Stream::kOutput);
    read_from(process_.errors(), error_lines_, Stream::kErrors);
  }

  // Its end with all it printed, once it has ended.
  std::optional<RankEnd> poll_end() {
    const auto end = process_.poll_end();
    if (!end) {
      return std::nullopt;
    }
    pass_lines_on();
    output_lines_.finish(sink(Stream::kOutput));
    error_lines_.finish(sink(Stream::kErrors));
    end_.end = *end;
    return end_;
  }

 private:
  LineCutter::Sink sink(Stream stream) {
    return [this, stream](std::string_view line) {
      if (stream == Stream::kErrors && line.starts_with(kErrorMark)) {
        end_.last_error = line.substr(kErrorMark.size());
      }
      output_.write(rank(), stream, line);
    };
  }

  void read_from(int descriptor, LineCutter& lines, Stream stream) {
    std::array<char, 16384> bytes;
    for (ssize_t count = 1; count > 0;) {
      count = read(descriptor, bytes.data(), bytes.size());
      if (count > 0) {
        lines.add({bytes.data(), static_cast<size_t>(count)}, sink(stream));
      }
    }
  }

  RankOutput& output_;
  ChildProcess process_;
  LineCutter output_lines_;
  LineCutter error_lines_;
  RankEnd end_;
};

// All ranks of an attempt, from start to end.
class Watch {
 public:
  Watch(const Team& team, RankOutput& output, SignalInbox& inbox, milliseconds grace)
      : inbox_(inbox), grace_(grace) {
    for (size_t i = 0; i < team.variables.size(); ++i) {
      running_.push_back(std::make_unique<RunningRank>(team, i, output));
    }
  }

  Attempt run() {
    while (!running_.empty()) {
      sleep_until_something_happens();
      for (const auto& rank : running_) {
        rank->pass_lines_on();
      }
      while (const auto signal = inbox_.take()) {
        if (*signal != SIGCHLD) {
          stop(*signal);
        }
      }
      collect_ends();
      if (deadline_ && Clock::now() >= *deadline_) {
        kill_all();
      }
    }
    return attempt_;
  }

 private:
  // A pipe whose writer has ended is readable for ever, so one look at it is enough: a short sleep
  // then waits for the news that its process has ended.
  void sleep_until_something_happens() {
    constexpr int kLongestSleepMs = 1000;
    constexpr int kShortSleepMs = 5;
    std::vector<pollfd> watched{{inbox_.descriptor(), POLLIN, 0}};
    for (const auto& rank : running_) {
      rank->add_to(watched);
    }
    auto sleep = milliseconds(kLongestSleepMs);
    if (deadline_) {
      sleep = std::clamp(std::chrono::ceil<milliseconds>(*deadline_ - Clock::now()),
                         milliseconds(0), sleep);
    }
    poll(watched.data(), watched.size(), static_cast<int>(sleep.count()));
    const bool only_ends = std::none_of(watched.begin(), watched.end(), [](const pollfd& file) {
      return (file.revents & POLLIN) != 0;
    });
    if (only_ends && sleep.count() > 0) {
      poll(watched.data(), 1, kShortSleepMs);
    }
  }

  void stop(int signal) {
    if (attempt_.stop_signal != 0) {
      kill_all();
      return;
    }
    attempt_.stop_signal = signal;
    for (const auto& rank : running_) {
      rank->signal(signal);
    }
  }

  void collect_ends() {
    std::erase_if(running_, [&](const auto& rank) {
      const auto end = rank->poll_end();
      if (end) {
        attempt_.ends.push_back(*end);
        if (end->has_failed() && !deadline_) {
          deadline_ = Clock::now() + grace_;
        }
      }
      return end.has_value();
    });
  }

  void kill_all() {
    for (const auto& rank : running_) {
      rank->kill();
    }
  }

  SignalInbox& inbox_;
  milliseconds grace_;
  std::vector<std::unique_ptr<RunningRank>> running_;
  std::optional<Clock::time_point> deadline_;  // once a rank has failed
  Attempt attempt_;
};

// Lower explains more.
int order_as_cause(const RankEnd& end) {
  if (end.had_to_be_killed) {
    return 2;
  }
  if (end.end.signal != 0) {
    return 0;
  }
  return end.end.code != static_cast<int>(ExitCode::kLostPeer) ? 1 : 3;
}

}  // namespace

bool RankEnd::has_failed() const {
  return end.signal != 0 || (end.code != static_cast<int>(ExitCode::kFinished) &&
                             end.code != static_cast<int>(ExitCode::kStoppedSaved));
}

std::string describe(const RankEnd& end) {
  const std::string who = fmt::format("rank {} (process {})", end.rank, end.process);
  if (end.had_to_be_killed) {
    return who + " hung: it did not end after the others had";
  }
  return who + " " + describe(end.end);
}

const RankEnd* Attempt::first_cause() const {
  const RankEnd* cause = nullptr;
  for (const RankEnd& end : ends) {
    if (end.has_failed() && (cause == nullptr || order_as_cause(end) < order_as_cause(*cause))) {
      cause = &end;
    }
  }
  return cause;
}

Attempt run_attempt(const Team& team, RankOutput& output, SignalInbox& inbox,
                    std::chrono::milliseconds grace) {
  return Watch(team, output, inbox, grace).run();
}

}  // namespace switchyard
