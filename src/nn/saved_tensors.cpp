#include "nn/saved_tensors.h"

#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/saved_variable_hooks.h>

#include "base/error.h"

namespace switchyard {
namespace {

thread_local SavedTensorPolicy* innermost = nullptr;

// libtorch offers default hooks to Python only; an engine of our own offers them to C++.
class EngineWithPolicy final : public torch::autograd::Engine {
 public:
  std::unique_ptr<torch::autograd::SavedVariableHooks> get_default_saved_variable_hooks() override {
    return innermost == nullptr ? nullptr : innermost->make_hooks();
  }
};

const bool engine_is_installed = [] {
  torch::autograd::set_default_engine_stub([]() -> torch::autograd::Engine& {
    static auto* engine = new EngineWithPolicy;  // outlives every thread that may still use it
    return *engine;
  });
  return true;
}();

}  // namespace

SavedTensorPolicy* active_policy() {
  return innermost;
}

ScopedPolicy::ScopedPolicy(SavedTensorPolicy* policy) : previous_(innermost) {
  check<ShapeError>(engine_is_installed, "the autograd engine has no hooks");
  innermost = policy;
}

ScopedPolicy::~ScopedPolicy() {
  innermost = previous_;
}

}  // namespace switchyard
