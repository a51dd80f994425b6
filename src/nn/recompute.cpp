#include "nn/recompute.h"

#include <memory>
#include <optional>
#include <utility>

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/saved_variable_hooks.h>

#include "base/error.h"
#include "nn/saved_tensors.h"

namespace switchyard {
namespace {

using torch::autograd::SavedVariableHooks;

class Replay;

// A tensor as it waits for backward: itself, or the note of which segment makes it.
class PackedTensor {
 public:
  explicit PackedTensor(const at::Tensor& tensor);
  at::Tensor unpack() const;

 private:
  at::Tensor tensor_;  // undefined where a segment makes it
  std::shared_ptr<Replay> maker_;
  std::vector<int64_t> sizes_;
  std::vector<int64_t> strides_;
  int64_t offset_ = 0;
};

// One run of a segment: what it needs to run again, and what the second run saved and made.
class Replay {
 public:
  Replay(Segment segment, const std::vector<at::Tensor>& inputs) : segment_(std::move(segment)) {
    for (const at::Tensor& input : inputs) {
      inputs_.push_back({PackedTensor(input), input.requires_grad()});
    }
  }

  size_t count_saved() { return num_saved_++; }
  void keep(const at::Tensor& saved) { again_.emplace_back(saved); }
  void keep_output() { keeps_output_ = true; }

  at::Tensor take(size_t index) {
    ensure_run();
    check<ShapeError>(again_.size() == num_saved_,
                      "a recomputed segment saved {} tensors, {} in its first run: it is not "
                      "repeatable",
                      again_.size(), num_saved_);
    return again_[index];
  }
  at::Tensor output() {
    ensure_run();
    return output_;
  }

 private:
  struct Input {
    PackedTensor tensor;
    bool requires_grad;
  };

  void ensure_run() {
    if (!has_run_) {
      has_run_ = true;
      run_again();
    }
  }
  void run_again();

  Segment segment_;
  std::vector<Input> inputs_;
  std::vector<at::Tensor> again_;
  at::Tensor output_;
  bool keeps_output_ = false;
  size_t num_saved_ = 0;
  bool has_run_ = false;
};

// First run: nothing is kept but a number.
class DropHooks final : public SavedVariableHooks {
 public:
  explicit DropHooks(std::shared_ptr<Replay> replay) : replay_(std::move(replay)) {}
  void call_pack_hook(const at::Tensor&) override { index_ = replay_->count_saved(); }
  at::Tensor call_unpack_hook() override { return replay_->take(index_); }

 private:
  std::shared_ptr<Replay> replay_;
  size_t index_ = 0;
};

class DropPolicy final : public SavedTensorPolicy {
 public:
  explicit DropPolicy(std::shared_ptr<Replay> replay) : replay_(std::move(replay)) {}
  std::unique_ptr<SavedVariableHooks> make_hooks() override {
    return std::make_unique<DropHooks>(replay_);
  }
  bool is_of_segment() const override { return true; }

 private:
  std::shared_ptr<Replay> replay_;
};

// Second run: each saved tensor is handed to the replay; the graph itself is thrown away.
class KeepHooks final : public SavedVariableHooks {
 public:
  explicit KeepHooks(Replay& replay) : replay_(replay) {}
  void call_pack_hook(const at::Tensor& saved) override { replay_.keep(saved.detach()); }
  at::Tensor call_unpack_hook() override {
    throw ShapeError("the graph of a recomputed segment is never run backward");
  }

 private:
  Replay& replay_;
};

class KeepPolicy final : public SavedTensorPolicy {
 public:
  explicit KeepPolicy(Replay& replay) : replay_(replay) {}
  std::unique_ptr<SavedVariableHooks> make_hooks() override {
    return std::make_unique<KeepHooks>(replay_);
  }
  bool is_of_segment() const override { return true; }

 private:
  Replay& replay_;
};

void Replay::run_again() {
  std::vector<at::Tensor> inputs;
  for (const Input& input : inputs_) {
    inputs.push_back(input.tensor.unpack().detach().requires_grad_(input.requires_grad));
  }
  inputs_.clear();
  KeepPolicy policy(*this);
  const ScopedPolicy scope(&policy);
  const at::AutoGradMode with_gradients(true);
  const std::vector<at::Tensor> outputs = segment_(inputs);
  if (keeps_output_) {
    output_ = outputs.at(0).detach();
  }
}

// Outside of segments: an output of one is kept as a note, everything else as it is.
class NoteHooks final : public SavedVariableHooks {
 public:
  void call_pack_hook(const at::Tensor& saved) override { packed_.emplace(saved); }
  at::Tensor call_unpack_hook() override { return packed_->unpack(); }

 private:
  std::optional<PackedTensor> packed_;
};

thread_local DroppedOutputs::Policy* active_outputs = nullptr;

std::vector<at::Tensor> run_dropping(const std::shared_ptr<Replay>& replay, const Segment& segment,
                                     const std::vector<at::Tensor>& inputs) {
  DropPolicy policy(replay);
  const ScopedPolicy scope(&policy);
  return segment(inputs);
}

bool runs_plainly() {
  return !at::GradMode::is_enabled() ||
         (active_policy() != nullptr && active_policy()->is_of_segment());
}

}  // namespace

class DroppedOutputs::Policy final : public SavedTensorPolicy {
 public:
  Policy() : scope_(this), previous_(std::exchange(active_outputs, this)) {}
  ~Policy() override { active_outputs = previous_; }
  Policy(const Policy&) = delete;
  Policy& operator=(const Policy&) = delete;

  std::unique_ptr<SavedVariableHooks> make_hooks() override {
    return std::make_unique<NoteHooks>();
  }
  bool makes_again(const at::Tensor& tensor) const override { return maker_of(tensor) != nullptr; }

  void add(const at::Tensor& output, const std::shared_ptr<Replay>& maker) {
    outputs_.push_back({output, maker});
  }
  std::shared_ptr<Replay> maker_of(const at::Tensor& tensor) const {
    for (const auto& [output, maker] : outputs_) {
      if (tensor.is_alias_of(output)) {
        return maker;
      }
    }
    return nullptr;
  }

 private:
  ScopedPolicy scope_;
  DroppedOutputs::Policy* previous_;
  std::vector<std::pair<at::Tensor, std::shared_ptr<Replay>>> outputs_;
};

namespace {

PackedTensor::PackedTensor(const at::Tensor& tensor) {
  maker_ = active_outputs == nullptr ? nullptr : active_outputs->maker_of(tensor);
  if (maker_ == nullptr) {
    tensor_ = tensor.detach();
    return;
  }
  sizes_ = tensor.sizes().vec();
  strides_ = tensor.strides().vec();
  offset_ = tensor.storage_offset();
}

at::Tensor PackedTensor::unpack() const {
  return maker_ == nullptr ? tensor_ : maker_->output().as_strided(sizes_, strides_, offset_);
}

}  // namespace

DroppedOutputs::DroppedOutputs()
    : policy_(at::GradMode::is_enabled() && !runs_plainly() ? std::make_unique<Policy>()
                                                            : nullptr) {}
DroppedOutputs::~DroppedOutputs() = default;

std::vector<at::Tensor> recompute(const Segment& segment, const std::vector<at::Tensor>& inputs) {
  if (runs_plainly()) {
    return segment(inputs);
  }
  return run_dropping(std::make_shared<Replay>(segment, inputs), segment, inputs);
}

at::Tensor recompute_with_output(
    const std::function<at::Tensor(const std::vector<at::Tensor>&)>& segment,
    const std::vector<at::Tensor>& inputs) {
  if (runs_plainly()) {
    return segment(inputs);
  }
  const Segment as_list = [segment](const std::vector<at::Tensor>& values) {
    return std::vector<at::Tensor>{segment(values)};
  };
  const auto replay = std::make_shared<Replay>(as_list, inputs);
  at::Tensor output = run_dropping(replay, as_list, inputs).at(0);
  if (active_outputs != nullptr) {
    replay->keep_output();
    active_outputs->add(output, replay);
  }
  return output;
}

}  // namespace switchyard
