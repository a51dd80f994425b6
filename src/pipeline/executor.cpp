#include "pipeline/executor.h"

#include <chrono>
#include <deque>
#include <map>
#include <utility>

#include "base/error.h"
#include "parallel/turns.h"

namespace switchyard {
namespace {

constexpr Site kHidden{"pipeline.hidden", Purpose::kPipeline};
constexpr Site kGradient{"pipeline.gradient", Purpose::kPipeline};

double now_s() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

class Executor {
 public:
  Executor(const Schedule& schedule, StageRunner& runner, const Group& pipeline)
      : shape_(schedule.shape),
        runner_(runner),
        pipeline_(pipeline),
        turns_(pipeline.ledger()),
        sending_(static_cast<size_t>(pipeline.size())) {}

  void make(const Action& action) {
    switch (action.kind) {
      case ActionKind::kReceiveHidden:
        return receive(action, action.stage - 1, kHidden);
      case ActionKind::kReceiveGradient:
        return receive(action, action.stage + 1, kGradient);
      case ActionKind::kSendHidden:
        return send(action, action.stage + 1, kHidden);
      case ActionKind::kSendGradient:
        return send(action, action.stage - 1, kGradient);
      default:
        return compute(action);
    }
  }

  // A forward and a backward pass together. The backward pass begins: what it needs is there first.
  void make_pair(const Action& forward, const Action& backward) {
    const double begin = now_s();
    turns_.run([&] { compute(backward); }, [&] { compute(forward); });
    const double end = now_s();
    times_.resize(times_.size() - 2);
    times_.push_back({forward, begin, (begin + end) / 2});
    times_.push_back({backward, (begin + end) / 2, end});
  }

  std::vector<TimedAction> finish() {
    for (auto& to_rank : sending_) {
      while (!to_rank.empty()) {
        finish_oldest(to_rank);
      }
    }
    return std::move(times_);
  }

 private:
  // A tensor on its way, kept until it is there.
  struct Transfer {
    at::Tensor values;
    PendingCollective pending;
  };
  using Key = std::pair<int64_t, int64_t>;  // micro-batch and stage

  static Key key(const Action& action) { return {action.micro_batch, action.stage}; }

  void receive(const Action& action, int64_t from_stage, const Site& site) {
    at::Tensor values = runner_.new_hidden(action.micro_batch);
    PendingCollective pending = pipeline_.start_receive(values, shape_.rank_of(from_stage), site);
    auto& arriving = action.kind == ActionKind::kReceiveHidden ? inputs_ : output_gradients_;
    arriving.emplace(key(action), Transfer{std::move(values), std::move(pending)});
  }

  void send(const Action& action, int64_t to_stage, const Site& site) {
    const int64_t to = shape_.rank_of(to_stage);
    auto& to_rank = sending_[static_cast<size_t>(to)];
    if (std::ssize(to_rank) >= shape_.most_unfinished_sends()) {
      finish_oldest(to_rank);
    }
    auto& ready = action.kind == ActionKind::kSendHidden ? outputs_ : input_gradients_;
    at::Tensor values = ready.extract(key(action)).mapped();
    PendingCollective pending = pipeline_.start_send(values, to, site);
    to_rank.push_back({std::move(values), std::move(pending)});
  }

  static void finish_oldest(std::deque<Transfer>& transfers) {
    transfers.front().pending.wait();
    transfers.pop_front();
  }

  static at::Tensor take(std::map<Key, Transfer>& arriving, const Action& action) {
    const auto found = arriving.extract(key(action));
    if (found.empty()) {
      return {};  // at the end of the pipeline
    }
    found.mapped().pending.wait();
    return found.mapped().values;
  }

  static void put(std::map<Key, at::Tensor>& ready, const Action& action,
                  const at::Tensor& values) {
    if (values.defined()) {
      ready.emplace(key(action), values.contiguous());
    }
  }

  void compute(const Action& action) {
    const auto& [kind, micro_batch, stage] = action;
    const bool is_forward = kind == ActionKind::kForward;
    const at::Tensor given = kind == ActionKind::kWeightGradient
                                 ? at::Tensor()
                                 : take(is_forward ? inputs_ : output_gradients_, action);
    const double begin = now_s();
    if (is_forward) {
      put(outputs_, action, runner_.forward(micro_batch, stage, given));
    } else if (kind == ActionKind::kBackward) {
      put(input_gradients_, action, runner_.backward(micro_batch, stage, given));
    } else if (kind == ActionKind::kInputGradient) {
      put(input_gradients_, action, runner_.input_gradient(micro_batch, stage, given));
    } else {
      runner_.weight_gradient(micro_batch, stage);
    }
    times_.push_back({action, begin, now_s()});
  }

  const PipelineShape& shape_;
  StageRunner& runner_;
  const Group& pipeline_;
  Turns turns_;
  std::map<Key, Transfer> inputs_;
  std::map<Key, Transfer> output_gradients_;
  std::map<Key, at::Tensor> outputs_;
  std::map<Key, at::Tensor> input_gradients_;
  std::vector<std::deque<Transfer>> sending_;  // [ranks]
  std::vector<TimedAction> times_;
};

}  // namespace

std::vector<TimedAction> run_schedule(const Schedule& schedule, StageRunner& runner,
                                      const Group& pipeline) {
  check<ConfigError>(schedule.shape.num_ranks == pipeline.size(),
                     "a schedule of {} ranks cannot run on {}", schedule.shape.num_ranks,
                     pipeline.size());
  Executor executor(schedule, runner, pipeline);
  const std::vector<Action>& actions = schedule.actions[static_cast<size_t>(pipeline.rank())];
  for (size_t i = 0; i < actions.size(); ++i) {
    if (schedule.pairs_passes && is_pair(actions, i)) {
      executor.make_pair(actions[i], actions[i + 1]);
      ++i;
    } else {
      executor.make(actions[i]);
    }
  }
  return executor.finish();
}

}  // namespace switchyard
