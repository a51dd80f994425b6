#include "nn/recompute.h"

#include <memory>
#include <optional>

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/saved_variable_hooks.h>

#include "base/error.h"

namespace switchyard {
namespace {

using torch::autograd::SavedVariableHooks;

// Tells what to do with each tensor that autograd saves on this thread.
class SavedTensorPolicy {
 public:
  virtual ~SavedTensorPolicy() = default;
  virtual std::unique_ptr<SavedVariableHooks> make_hooks() = 0;
};

thread_local SavedTensorPolicy* active_policy = nullptr;

class ScopedPolicy {
 public:
  explicit ScopedPolicy(SavedTensorPolicy* policy) : previous_(active_policy) {
    active_policy = policy;
  }
  ~ScopedPolicy() { active_policy = previous_; }
  ScopedPolicy(const ScopedPolicy&) = delete;
  ScopedPolicy& operator=(const ScopedPolicy&) = delete;

 private:
  SavedTensorPolicy* previous_;
};

// libtorch offers default hooks to Python only; an engine of our own offers them to C++.
class EngineWithPolicy final : public torch::autograd::Engine {
 public:
  std::unique_ptr<SavedVariableHooks> get_default_saved_variable_hooks() override {
    return active_policy == nullptr ? nullptr : active_policy->make_hooks();
  }
};

const bool engine_is_installed = [] {
  torch::autograd::set_default_engine_stub([]() -> torch::autograd::Engine& {
    static auto* engine = new EngineWithPolicy;  // outlives every thread that may still use it
    return *engine;
  });
  return true;
}();

// One run of a segment: what it needs to run again, and what the second run saved.
class Replay {
 public:
  Replay(Segment segment, const std::vector<at::Tensor>& inputs) : segment_(std::move(segment)) {
    for (const at::Tensor& input : inputs) {
      inputs_.push_back(input.detach().requires_grad_(input.requires_grad()));
    }
  }

  size_t count_saved() { return num_saved_++; }
  void keep(const at::Tensor& saved) { again_.emplace_back(saved); }

  at::Tensor take(size_t index) {
    if (!has_run_) {
      has_run_ = true;
      run_again();
      check<ShapeError>(again_.size() == num_saved_,
                        "a recomputed segment saved {} tensors, {} in its first run: it is not "
                        "repeatable",
                        again_.size(), num_saved_);
    }
    return again_[index];
  }

 private:
  void run_again();

  Segment segment_;
  std::vector<at::Tensor> inputs_;
  std::vector<at::Tensor> again_;
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

 private:
  Replay& replay_;
};

void Replay::run_again() {
  KeepPolicy policy(*this);
  const ScopedPolicy scope(&policy);
  const at::AutoGradMode with_gradients(true);
  segment_(inputs_);
  inputs_.clear();
}

}  // namespace

std::vector<at::Tensor> recompute(const Segment& segment, const std::vector<at::Tensor>& inputs) {
  if (!at::GradMode::is_enabled()) {
    return segment(inputs);
  }
  check<ShapeError>(engine_is_installed, "the autograd engine has no hooks");
  DropPolicy policy(std::make_shared<Replay>(segment, inputs));
  const ScopedPolicy scope(&policy);
  return segment(inputs);
}

}  // namespace switchyard
