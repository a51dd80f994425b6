#include "pipeline/simulate.h"

#include <algorithm>
#include <limits>
#include <map>
#include <optional>
#include <utility>

#include <fmt/format.h>

namespace switchyard {
namespace {

// What travels from one rank to another: the times at which each tensor was sent and at which the
// other side was ready for it.
struct Channel {
  std::vector<double> sent;
  std::vector<double> begun;
};

class Simulation {
 public:
  Simulation(const Schedule& schedule, const Duration& duration)
      : schedule_(schedule),
        duration_(duration),
        clocks_(schedule.actions.size(), 0),
        next_(schedule.actions.size(), 0) {
    run_.computations.resize(schedule.actions.size());
  }

  SimulatedRun run() {
    for (bool has_moved = true; has_moved;) {
      has_moved = false;
      for (size_t rank = 0; rank < next_.size(); ++rank) {
        while (next_[rank] < schedule_.actions[rank].size() &&
               make(rank, schedule_.actions[rank][next_[rank]])) {
          ++next_[rank];
          has_moved = true;
        }
      }
    }
    for (size_t rank = 0; rank < next_.size(); ++rank) {
      if (next_[rank] < schedule_.actions[rank].size()) {
        run_.stuck.push_back(fmt::format("rank {} waits for ever: {}", rank,
                                         to_string(schedule_.actions[rank][next_[rank]])));
      }
    }
    return std::move(run_);
  }

 private:
  // Whether the action could be made.
  bool make(size_t rank, const Action& action) {
    if (is_send(action.kind)) {
      return send(rank, action);
    }
    if (is_receive(action.kind)) {
      const bool is_hidden = action.kind == ActionKind::kReceiveHidden;
      const int64_t from = schedule_.shape.rank_of(action.stage + (is_hidden ? -1 : 1));
      Channel& channel = channels_[{from, static_cast<int64_t>(rank)}];
      received_[{is_hidden, action.micro_batch, action.stage}] = {&channel, channel.begun.size()};
      channel.begun.push_back(clocks_[rank]);
      return true;
    }
    return compute(rank, action);
  }

  bool send(size_t rank, const Action& action) {
    const int64_t to =
        schedule_.shape.rank_of(action.stage + (action.kind == ActionKind::kSendHidden ? 1 : -1));
    Channel& channel = channels_[{static_cast<int64_t>(rank), to}];
    const auto limit = static_cast<size_t>(schedule_.shape.most_unfinished_sends());
    if (const size_t number = channel.sent.size(); number >= limit) {
      const size_t earlier = number - limit;
      if (channel.begun.size() <= earlier) {
        return false;
      }
      clocks_[rank] = std::max(clocks_[rank], channel.begun[earlier]);
    }
    channel.sent.push_back(clocks_[rank]);
    return true;
  }

  bool compute(size_t rank, const Action& action) {
    const bool is_forward = action.kind == ActionKind::kForward;
    const auto input = received_.find({is_forward, action.micro_batch, action.stage});
    if (input != received_.end() && action.kind != ActionKind::kWeightGradient) {
      const auto [channel, number] = input->second;
      if (channel->sent.size() <= number) {
        return false;
      }
      clocks_[rank] = std::max(clocks_[rank], channel->sent[number]);
    }
    const double begin = clocks_[rank];
    clocks_[rank] += duration_(action);
    run_.computations[rank].push_back({action, begin, clocks_[rank]});
    return true;
  }

  struct Key {
    bool is_hidden;
    int64_t micro_batch;
    int64_t stage;
    auto operator<=>(const Key&) const = default;
  };

  const Schedule& schedule_;
  const Duration& duration_;
  std::vector<double> clocks_;
  std::vector<size_t> next_;
  std::map<std::pair<int64_t, int64_t>, Channel> channels_;  // by sender and receiver
  std::map<Key, std::pair<Channel*, size_t>> received_;
  SimulatedRun run_;
};

}  // namespace

double bubble_share(const std::vector<std::vector<TimedAction>>& computations) {
  double begin = std::numeric_limits<double>::infinity();
  double end = 0;
  double busy = 0;
  for (const auto& of_rank : computations) {
    for (const TimedAction& one : of_rank) {
      begin = std::min(begin, one.begin_s);
      end = std::max(end, one.end_s);
      busy += one.end_s - one.begin_s;
    }
  }
  return end > begin ? 1 - busy / ((end - begin) * static_cast<double>(computations.size())) : 0;
}

double SimulatedRun::bubble_share() const {
  return switchyard::bubble_share(computations);
}

double SimulatedRun::end_s() const {
  double end = 0;
  for (const auto& of_rank : computations) {
    end = of_rank.empty() ? end : std::max(end, of_rank.back().end_s);
  }
  return end;
}

SimulatedRun simulate(const Schedule& schedule, const Duration& duration) {
  return Simulation(schedule, duration).run();
}

}  // namespace switchyard
