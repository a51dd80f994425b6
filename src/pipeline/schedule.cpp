#include "pipeline/schedule.h"

#include <algorithm>
#include <deque>
#include <map>
#include <optional>
#include <tuple>

#include <fmt/format.h>

#include "base/error.h"
#include "config/config.h"

namespace switchyard {
namespace {

using Actions = std::vector<Action>;

std::string_view words(ActionKind kind) {
  switch (kind) {
    case ActionKind::kForward:
      return "forward";
    case ActionKind::kBackward:
      return "backward";
    case ActionKind::kInputGradient:
      return "input gradient";
    case ActionKind::kWeightGradient:
      return "weight gradient";
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

// How many passes a rank runs forward before its first backward. One stage per rank and one pass at
// a time, each rank after this one takes one more; interleaved it takes two, and so it does in
// pairs, where what a pair has made is used in the next pair of the neighbour. And a pair's forward
// pass is one ahead of that which its backward pass answers.
int64_t num_warm_up(const PipelineShape& shape, int64_t rank, bool pairs_passes) {
  const int64_t ranks_after = shape.num_ranks - 1 - rank;
  const int64_t passes = shape.stages_per_rank * shape.num_micro_batches;
  const int64_t stages_after = (shape.stages_per_rank - 1) * group_sizes(shape).front();
  const bool is_slow_start = shape.stages_per_rank > 1 || pairs_passes;
  return std::min(passes,
                  (is_slow_start ? 2 : 1) * ranks_after + stages_after + (pairs_passes ? 1 : 0));
}

Actions forward_and_backward_in_turn(const PipelineShape& shape, int64_t rank, bool pairs_passes) {
  const Actions forwards = order_of_passes(shape, rank, ActionKind::kForward);
  const Actions backwards = order_of_passes(shape, rank, ActionKind::kBackward);
  const auto warm_up = static_cast<size_t>(num_warm_up(shape, rank, pairs_passes));
  Actions computations(forwards.begin(), forwards.begin() + static_cast<int64_t>(warm_up));
  for (size_t i = 0; i < backwards.size(); ++i) {
    if (warm_up + i < forwards.size()) {
      computations.push_back(forwards[warm_up + i]);
    }
    computations.push_back(backwards[i]);
  }
  return computations;
}

// Splits backward passes; the gradients of weights stay `delay` micro-batches behind.
Actions with_late_weight_gradients(const Actions& computations, int64_t delay) {
  Actions split;
  std::deque<Action> late;
  const auto catch_up = [&](int64_t delay_left) {
    for (; std::ssize(late) > delay_left; late.pop_front()) {
      split.push_back(late.front());
    }
  };
  for (const Action& action : computations) {
    if (action.kind == ActionKind::kForward) {
      split.push_back(action);
      continue;
    }
    split.push_back({ActionKind::kInputGradient, action.micro_batch, action.stage});
    late.push_back({ActionKind::kWeightGradient, action.micro_batch, action.stage});
    catch_up(delay);
  }
  catch_up(0);
  return split;
}

// What must be received before a computation, and what is sent after it.
std::optional<Action> input_of(const PipelineShape& shape, const Action& action) {
  const auto& [kind, micro_batch, stage] = action;
  if (kind == ActionKind::kForward) {
    return stage > 0 ? std::optional(Action{ActionKind::kReceiveHidden, micro_batch, stage})
                     : std::nullopt;
  }
  return kind != ActionKind::kWeightGradient && stage + 1 < shape.num_stages()
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
  return kind != ActionKind::kWeightGradient && stage > 0
             ? std::optional(Action{ActionKind::kSendGradient, micro_batch, stage})
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

// Puts sends and receives between the computations. A receive begins one computation, or pair of
// them, early, so that the tensor travels during that one.
Schedule with_transfers(const PipelineShape& shape, const std::vector<Actions>& computations,
                        bool pairs_passes = false) {
  std::map<std::pair<int64_t, int64_t>, Channel> channels;  // by sender and receiver
  for (int64_t rank = 0; rank < shape.num_ranks; ++rank) {
    for (const Action& action : computations[static_cast<size_t>(rank)]) {
      if (const auto send = output_of(shape, action)) {
        const Action receive = receive_of(*send);
        channels[{rank, shape.rank_of(receive.stage)}].add(receive);
      }
    }
  }
  Schedule schedule{.shape = shape, .pairs_passes = pairs_passes};
  for (int64_t rank = 0; rank < shape.num_ranks; ++rank) {
    const Actions& own = computations[static_cast<size_t>(rank)];
    Actions actions;
    // Not before: other ranks may wait for the last of the first forward passes.
    const auto first_pair = static_cast<size_t>(num_warm_up(shape, rank, pairs_passes));
    const auto num_together = [&](size_t i) {
      return pairs_passes && i >= first_pair && is_pair(own, i) ? size_t{2} : size_t{1};
    };
    const auto receive_for = [&](size_t begin) {
      const size_t end = std::min(begin + num_together(begin), own.size());
      for (size_t i = begin; i < end; ++i) {
        if (const auto receive = input_of(shape, own[i])) {
          const int64_t sender_stage =
              receive->stage + (receive->kind == ActionKind::kReceiveHidden ? -1 : 1);
          channels[{shape.rank_of(sender_stage), rank}].receive_up_to(*receive, actions);
        }
      }
    };
    receive_for(0);
    for (size_t begin = 0; begin < own.size();) {
      const size_t end = begin + num_together(begin);
      receive_for(end);
      for (size_t i = begin; i < end; ++i) {
        actions.push_back(own[i]);
      }
      for (; begin < end; ++begin) {
        if (const auto send = output_of(shape, own[begin])) {
          actions.push_back(*send);
        }
      }
    }
    schedule.actions.push_back(std::move(actions));
  }
  return schedule;
}

std::vector<Actions> passes_in_turn(const PipelineShape& shape, bool pairs_passes) {
  check_shape(shape);
  std::vector<Actions> computations;
  for (int64_t rank = 0; rank < shape.num_ranks; ++rank) {
    computations.push_back(forward_and_backward_in_turn(shape, rank, pairs_passes));
  }
  return computations;
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

bool is_pair(const std::vector<Action>& actions, size_t i) {
  return i + 1 < actions.size() && actions[i].kind == ActionKind::kForward &&
         actions[i + 1].kind == ActionKind::kBackward &&
         actions[i].micro_batch != actions[i + 1].micro_batch;
}

Schedule one_forward_one_backward(const PipelineShape& shape) {
  return with_transfers(shape, passes_in_turn(shape, /*pairs_passes=*/false));
}

Schedule forward_beside_backward(const PipelineShape& shape) {
  return with_transfers(shape, passes_in_turn(shape, /*pairs_passes=*/true), /*pairs_passes=*/true);
}

Schedule zero_bubble(const PipelineShape& shape) {
  check<ConfigError>(shape.stages_per_rank == 1,
                     "the zero-bubble schedule is for one stage per rank, not {}",
                     shape.stages_per_rank);
  std::vector<Actions> computations = passes_in_turn(shape, /*pairs_passes=*/false);
  for (size_t rank = 0; rank < computations.size(); ++rank) {
    computations[rank] = with_late_weight_gradients(computations[rank], static_cast<int64_t>(rank));
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

MakeSchedule training_schedule(const ParallelConfig& parallel) {
  if (parallel.expert_overlap) {
    return forward_beside_backward;
  }
  return parallel.pipeline_schedule == PipelineSchedule::kZeroBubble ? zero_bubble
                                                                     : one_forward_one_backward;
}

}  // namespace switchyard
