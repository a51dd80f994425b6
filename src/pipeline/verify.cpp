#include "pipeline/verify.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include <fmt/format.h>

#include "pipeline/simulate.h"

namespace switchyard {
namespace {

using Lines = std::vector<std::string>;

// Where each action of one rank is in its order; an action that occurs twice is a fault.
class Places {
 public:
  Places(const std::vector<Action>& actions, Lines& faults) {
    for (size_t i = 0; i < actions.size(); ++i) {
      const auto& [kind, micro_batch, stage] = actions[i];
      if (!places_.emplace(Key{kind, micro_batch, stage}, i).second) {
        faults.push_back(fmt::format("twice: {}", to_string(actions[i])));
      }
    }
  }

  std::optional<size_t> find(ActionKind kind, int64_t micro_batch, int64_t stage) const {
    const auto found = places_.find({kind, micro_batch, stage});
    return found == places_.end() ? std::nullopt : std::optional(found->second);
  }
  size_t size() const { return places_.size(); }

 private:
  struct Key {
    ActionKind kind;
    int64_t micro_batch;
    int64_t stage;
    auto operator<=>(const Key&) const = default;
  };
  std::map<Key, size_t> places_;
};

// Looks at one micro-batch in one stage, on the rank of the stage.
class OneVisit {
 public:
  OneVisit(const Schedule& schedule, const Places& places, int64_t micro_batch, int64_t stage,
           Lines& faults)
      : schedule_(schedule),
        places_(places),
        micro_batch_(micro_batch),
        stage_(stage),
        faults_(faults) {}

  // Returns how many actions it consists of.
  size_t check() {
    const bool is_first = stage_ == 0;
    const bool is_last = stage_ + 1 == schedule_.shape.num_stages();
    const auto forward = need(ActionKind::kForward);
    in_order(is_first ? std::nullopt : need(ActionKind::kReceiveHidden), forward);
    in_order(forward, is_last ? std::nullopt : need(ActionKind::kSendHidden));
    if (schedule_.is_forward_only) {
      return num_found_;
    }
    const bool is_split =
        places_.find(ActionKind::kInputGradient, micro_batch_, stage_).has_value();
    const auto backward = need(is_split ? ActionKind::kInputGradient : ActionKind::kBackward);
    in_order(forward, backward);
    in_order(is_last ? std::nullopt : need(ActionKind::kReceiveGradient), backward);
    in_order(backward, is_first ? std::nullopt : need(ActionKind::kSendGradient));
    if (is_split) {
      in_order(backward, need(ActionKind::kWeightGradient));
    }
    return num_found_;
  }

 private:
  std::optional<size_t> need(ActionKind kind) {
    const auto found = places_.find(kind, micro_batch_, stage_);
    if (found) {
      ++num_found_;
    } else {
      faults_.push_back(fmt::format("missing: {}", to_string({kind, micro_batch_, stage_})));
    }
    return found;
  }
  void in_order(const std::optional<size_t>& first, const std::optional<size_t>& second) {
    if (first && second && *first > *second) {
      const auto& actions = schedule_.actions[static_cast<size_t>(schedule_.shape.rank_of(stage_))];
      faults_.push_back(fmt::format("{} comes before {}", to_string(actions[*second]),
                                    to_string(actions[*first])));
    }
  }

  const Schedule& schedule_;
  const Places& places_;
  int64_t micro_batch_;
  int64_t stage_;
  Lines& faults_;
  size_t num_found_ = 0;
};

void check_visits(const Schedule& schedule, Lines& faults) {
  std::vector<Places> places;
  for (const auto& actions : schedule.actions) {
    places.emplace_back(actions, faults);
  }
  std::vector<size_t> num_expected(places.size(), 0);
  for (int64_t stage = 0; stage < schedule.shape.num_stages(); ++stage) {
    const auto rank = static_cast<size_t>(schedule.shape.rank_of(stage));
    std::optional<size_t> previous;
    for (int64_t micro_batch = 0; micro_batch < schedule.shape.num_micro_batches; ++micro_batch) {
      num_expected[rank] += OneVisit(schedule, places[rank], micro_batch, stage, faults).check();
      const auto forward = places[rank].find(ActionKind::kForward, micro_batch, stage);
      if (previous && forward && *previous > *forward) {
        faults.push_back(
            fmt::format("out of order: {}", to_string({ActionKind::kForward, micro_batch, stage})));
      }
      previous = forward;
    }
  }
  for (size_t rank = 0; rank < places.size(); ++rank) {
    if (places[rank].size() != num_expected[rank]) {
      faults.push_back(fmt::format("rank {} has {} actions, {} are its own", rank,
                                   places[rank].size(), num_expected[rank]));
    }
  }
}

// A tensor on its way: what it is, and the stage it goes to.
struct Message {
  bool is_hidden;
  int64_t micro_batch;
  int64_t to_stage;
  bool operator==(const Message&) const = default;
};

void check_transfers(const Schedule& schedule, Lines& faults) {
  struct Ends {
    std::vector<Message> sent;
    std::vector<Message> received;
  };
  std::map<std::pair<int64_t, int64_t>, Ends> channels;  // by sender and receiver
  for (int64_t rank = 0; rank < schedule.shape.num_ranks; ++rank) {
    for (const auto& [kind, micro_batch, stage] : schedule.actions[static_cast<size_t>(rank)]) {
      const bool is_hidden = kind == ActionKind::kSendHidden || kind == ActionKind::kReceiveHidden;
      if (is_send(kind)) {
        const int64_t to = stage + (is_hidden ? 1 : -1);
        channels[{rank, schedule.shape.rank_of(to)}].sent.push_back({is_hidden, micro_batch, to});
      } else if (is_receive(kind)) {
        const int64_t from = stage - (is_hidden ? 1 : -1);
        channels[{schedule.shape.rank_of(from), rank}].received.push_back(
            {is_hidden, micro_batch, stage});
      }
    }
  }
  for (const auto& [ranks, ends] : channels) {
    if (ends.sent != ends.received) {
      faults.push_back(
          fmt::format("what rank {} sends to rank {} is not what that one receives, in this order",
                      ranks.first, ranks.second));
    }
  }
}

}  // namespace

std::vector<std::string> faults_of(const Schedule& schedule) {
  Lines faults;
  if (static_cast<int64_t>(schedule.actions.size()) != schedule.shape.num_ranks) {
    return {fmt::format("actions of {} ranks for a pipeline of {}", schedule.actions.size(),
                        schedule.shape.num_ranks)};
  }
  check_visits(schedule, faults);
  check_transfers(schedule, faults);
  if (faults.empty()) {
    faults = simulate(schedule, [](const Action&) { return 1.0; }).stuck;
  }
  return faults;
}

std::vector<int64_t> most_in_flight(const Schedule& schedule) {
  std::vector<int64_t> most;
  for (const auto& actions : schedule.actions) {
    int64_t now = 0;
    most.push_back(0);
    for (const Action& action : actions) {
      now += action.kind == ActionKind::kForward ? 1 : 0;
      most.back() = std::max(most.back(), now);
      const bool is_end =
          action.kind == ActionKind::kBackward || action.kind == ActionKind::kWeightGradient;
      now -= is_end ? 1 : 0;
    }
  }
  return most;
}

}  // namespace switchyard
