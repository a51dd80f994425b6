#include "pipeline/schedule.h"

#include <algorithm>
#include <map>
#include <optional>
#include <tuple>

#include <fmt/format.h>

#include "base/error.h"

namespace switchyard {
namespace {

using Actions = std::vector<Action>;

std::string_view words(ActionKind kind) {
  switch (kind) {
    case ActionKind::kForward:
      return "forward";
    case ActionKind::kBackward:
      return "backward";
    case ActionKind::kReceiveHidden:
      return "receiving the input";
    case ActionKind::kSendHidden:
      return "sending the output";
    case ActionKind::kReceiveGradient:
      return "receiving the output's gradient";
    case ActionKind::kSendGradient:
      return "sending the input's gradient";
  }
  return "";
}

void check_shape(const PipelineShape& shape) {
  check<ConfigError>(
      shape.num_ranks >= 1 && shape.stages_per_rank >= 1 && shape.num_micro_batches >= 0,
      "a pipeline of {} ranks with {} stages each and {} micro-batches cannot be", shape.num_ranks,
      shape.stages_per_rank, shape.num_micro_batches);
  check<ConfigError>(shape.num_ranks > 1 || shape.stages_per_rank == 1,
                     "a pipeline of one rank has one stage, not {}", shape.stages_per_rank);
}

// How many micro-batches run through one stage of a rank before its next stage has its turn. With
// num_ranks of them the input of that stage is there in time. For fewer the rank would wait, and
// between groups of num_ranks for ever, so the first group takes what is left over.
std::vector<int64_t> group_sizes(const PipelineShape& shape) {
  const int64_t ranks = shape.num_ranks;
  const int64_t num_groups = std::max<int64_t>(1, shape.num_micro_batches / ranks);
  std::vector<int64_t> sizes(static_cast<size_t>(num_groups), ranks);
  sizes.front() = shape.num_micro_batches - (num_groups - 1) * ranks;
  return sizes;
}

// The order in which a rank's forward passes run, or, from its last stage to its first, its
// backward passes.
Actions order_of_passes(const PipelineShape& shape, int64_t rank, ActionKind kind) {
  Actions order;
  int64_t first = 0;
  for (const int64_t size : group_sizes(shape)) {
    for (int64_t i = 0; i < shape.stages_per_rank; ++i) {
      const int64_t chunk = kind == ActionKind::kForward ? i : shape.stages_per_rank - 1 - i;
      for (int64_t micro_batch = first; micro_batch < first + size; ++micro_batch) {
        order.push_back({kind, micro_batch, chunk * shape.num_ranks + rank});
      }
    }
    first += size;
  }
  return order;
}

// How many passes a rank runs forward before its first backward.
int64_t num_warm_up(const PipelineShape& shape, int64_t rank) {
  const int64_t ranks_after = shape.num_ranks - 1 - rank;
  const int64_t passes = shape.stages_per_rank * shape.num_micro_batches;
  if (shape.stages_per_rank == 1) {
    return std::min(passes, ranks_after);
  }
  return std::min(passes,
                  2 * ranks_after + (shape.stages_per_rank - 1) * group_sizes(shape).front());
}

Actions forward_and_backward_in_turn(const PipelineShape& shape, int64_t rank) {
  const Actions forwards = order_of_passes(shape, rank, ActionKind::kForward);
  const Actions backwards = order_of_passes(shape, rank, ActionKind::kBackward);
  const auto warm_up = static_cast<size_t>(num_warm_up(shape, rank));
  Actions computations(forwards.begin(), forwards.begin() + static_cast<int64_t>(warm_up));
  for (size_t i = 0; i < backwards.size(); ++i) {
    if (warm_up + i < forwards.size()) {
      computations.push_back(forwards[warm_up + i]);
    }
    computations.push_back(backwards[i]);
  }
  return computations;
}

// What must be received before a computation, and what is sent after it.
std::optional<Action> input_of(const PipelineShape& shape, const Action& action) {
  const auto& [kind, micro_batch, stage] = action;
  if (kind == ActionKind::kForward) {
    return stage > 0 ? std::optional(Action{ActionKind::kReceiveHidden, micro_batch, stage})
                     : std::nullopt;
  }
  return stage + 1 < shape.num_stages()
             ? std::optional(Action{ActionKind::kReceiveGradient, micro_batch, stage})
             : std::nullopt;
}

std::optional<Action> output_of(const PipelineShape& shape, const Action& action) {
  const auto& [kind, micro_batch, stage] = action;
  if (kind == ActionKind::kForward) {
    return stage + 1 < shape.num_stages()
               ? std::optional(Action{ActionKind::kSendHidden, micro_batch, stage})
               : std::nullopt;
  }
  return stage > 0 ? std::optional(Action{ActionKind::kSendGradient, micro_batch, stage})
                   : std::nullopt;
}

// The receive that a send meets.
Action receive_of(const Action& send) {
  return send.kind == ActionKind::kSendHidden
             ? Action{ActionKind::kReceiveHidden, send.micro_batch, send.stage + 1}
             : Action{ActionKind::kReceiveGradient, send.micro_batch, send.stage - 1};
}

// Receives of one rank, in the order in which another rank sends.
class Channel {
 public:
  void add(const Action& receive) { receives_.push_back(receive); }
  // Appends to `actions` all receives up to and including this one that are not there yet.
  void receive_up_to(const Action& receive, Actions& actions) {
    const auto found = std::find(receives_.begin(), receives_.end(), receive);
    for (const auto end = static_cast<size_t>(found - receives_.begin()) + 1; next_ < end;) {
      actions.push_back(receives_[next_++]);
    }
  }

 private:
  Actions receives_;
  size_t next_ = 0;
};

// Puts sends and receives between the computations. A receive begins one computation early, so that
// the tensor travels during that one.
Schedule with_transfers(const PipelineShape& shape, const std::vector<Actions>& computations) {
  std::map<std::pair<int64_t, int64_t>, Channel> channels;  // by sender and receiver
  for (int64_t rank = 0; rank < shape.num_ranks; ++rank) {
    for (const Action& action : computations[static_cast<size_t>(rank)]) {
      if (const auto send = output_of(shape, action)) {
        const Action receive = receive_of(*send);
        channels[{rank, shape.rank_of(receive.stage)}].add(receive);
      }
    }
  }
  Schedule schedule{.shape = shape};
  for (int64_t rank = 0; rank < shape.num_ranks; ++rank) {
    const Actions& own = computations[static_cast<size_t>(rank)];
    Actions actions;
    const auto receive_for = [&](size_t i) {
      const auto receive = i < own.size() ? input_of(shape, own[i]) : std::nullopt;
      if (receive) {
        const int64_t sender_stage =
            receive->stage + (receive->kind == ActionKind::kReceiveHidden ? -1 : 1);
        channels[{shape.rank_of(sender_stage), rank}].receive_up_to(*receive, actions);
      }
    };
    receive_for(0);
    for (size_t i = 0; i < own.size(); ++i) {
      receive_for(i + 1);
      actions.push_back(own[i]);
      if (const auto send = output_of(shape, own[i])) {
        actions.push_back(*send);
      }
    }
    schedule.actions.push_back(std::move(actions));
  }
  return schedule;
}

}  // namespace

bool is_send(ActionKind kind) {
  return kind == ActionKind::kSendHidden || kind == ActionKind::kSendGradient;
}

bool is_receive(ActionKind kind) {
  return kind == ActionKind::kReceiveHidden || kind == ActionKind::kReceiveGradient;
}

bool is_computation(ActionKind kind) {
  return !is_send(kind) && !is_receive(kind);
}

std::string to_string(const Action& action) {
  return fmt::format("{} of micro-batch {} in stage {}", words(action.kind), action.micro_batch,
                     action.stage);
}

Schedule one_forward_one_backward(const PipelineShape& shape) {
  check_shape(shape);
  std::vector<Actions> computations;
  for (int64_t rank = 0; rank < shape.num_ranks; ++rank) {
    computations.push_back(forward_and_backward_in_turn(shape, rank));
  }
  return with_transfers(shape, computations);
}

Schedule forward_only(const PipelineShape& shape) {
  check_shape(shape);
  std::vector<Actions> computations;
  for (int64_t rank = 0; rank < shape.num_ranks; ++rank) {
    computations.push_back(order_of_passes(shape, rank, ActionKind::kForward));
  }
  Schedule schedule = with_transfers(shape, computations);
  schedule.is_forward_only = true;
  return schedule;
}

}  // namespace switchyard
