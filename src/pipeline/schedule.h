#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace switchyard {

struct ParallelConfig;

// A pipeline deals the layers of a model out to ranks. Its layers lie in stages, one after the
// other, and stage s is on rank s modulo the number of ranks: with as many stages as ranks each has
// one, with more each has several (interleaved, arXiv:2104.04473).
struct PipelineShape {
  int64_t num_ranks = 1;
  int64_t stages_per_rank = 1;  // above 1 only with several ranks
  int64_t num_micro_batches = 1;

  int64_t num_stages() const { return num_ranks * stages_per_rank; }
  int64_t rank_of(int64_t stage) const { return stage % num_ranks; }
  // Of one rank to another: a further send waits until the first of them begins to be received.
  // (Interleaved, a gradient may be there up to num_ranks micro-batches before it is used.)
  int64_t most_unfinished_sends() const { return num_ranks > 2 ? num_ranks : 2; }
};

enum class ActionKind {
  kForward,
  kBackward,         // gradients of the stage's input and of its weights
  kInputGradient,    // the first alone,
  kWeightGradient,   // and the second, some time later
  kReceiveHidden,    // begins to receive the stage's input from the stage before
  kSendHidden,       // sends the stage's output to the stage after
  kReceiveGradient,  // begins to receive the gradient of the stage's output
  kSendGradient,     // sends the gradient of the stage's input
};

// What a rank does next with one micro-batch in one of its stages.
struct Action {
  ActionKind kind = ActionKind::kForward;
  int64_t micro_batch = 0;
  int64_t stage = 0;

  bool operator==(const Action&) const = default;
};

bool is_computation(ActionKind kind);
bool is_send(ActionKind kind);
bool is_receive(ActionKind kind);
std::string to_string(const Action& action);  // "forward of micro-batch 3 in stage 1"

// A schedule is data: what each rank does, in order. A receive only begins; the computation that
// needs the tensor waits for it. A send waits only while too many earlier ones to the same rank
// have not begun to be received. Between two ranks, sends and receives have the same order.
struct Schedule {
  PipelineShape shape;
  bool is_forward_only = false;
  // Computations that is_pair() names run together: in turn, each while what the other sent to
  // other ranks of its stage travels.
  bool pairs_passes = false;
  std::vector<std::vector<Action>> actions = {};  // [ranks]
};

// Whether actions[i] is a forward pass that the backward pass of another micro-batch follows at
// once.
bool is_pair(const std::vector<Action>& actions, size_t i);

// One stage per rank: one forward, one backward (PipeDream-flush, arXiv:2006.09503): rank r runs
// num_ranks - 1 - r micro-batches forward, then one forward and one backward in turn, so that it
// holds the activations of num_ranks - r micro-batches at most. Several: interleaved
// (arXiv:2104.04473), in groups of num_ranks micro-batches of which the first takes what is left
// over. Any number of micro-batches, also fewer than ranks.
Schedule one_forward_one_backward(const PipelineShape& shape);

// As one_forward_one_backward() with one stage per rank, but the gradients of weights wait: those
// of as many micro-batches as there are ranks before this one, which then fill the time in which it
// would idle at the end (ZB-H1, arXiv:2401.10241). Every rank holds num_ranks micro-batches at
// most. Throws ConfigError for several stages per rank.
Schedule zero_bubble(const PipelineShape& shape);

// As one_forward_one_backward(), but each forward pass is one with the backward pass after it, of
// another micro-batch (the pairs of DeepSeek-V3, arXiv:2412.19437). For that each rank runs more
// micro-batches forward first: 2 x (num_ranks - 1 - r) + 1 with one stage per rank, where it then
// holds those of 2 x (num_ranks - r), and with several one more.
Schedule forward_beside_backward(const PipelineShape& shape);

// All micro-batches forward; for evaluation.
Schedule forward_only(const PipelineShape& shape);

using MakeSchedule = Schedule (*)(const PipelineShape&);

// What the settings pipeline_schedule and expert_overlap ask for.
MakeSchedule training_schedule(const ParallelConfig& parallel);

}  // namespace switchyard
