#include "nn/offload.h"

#include <utility>

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/saved_variable_hooks.h>

#include "nn/saved_tensors.h"

namespace switchyard {
namespace {

using torch::autograd::SavedVariableHooks;

class OffloadHooks final : public SavedVariableHooks {
 public:
  // `outer`: hooks to leave a tensor to that `outer_policy` makes again, or null.
  OffloadHooks(const Parameters& parameters, HostMemory& memory, SavedTensorPolicy* outer)
      : parameters_(parameters), memory_(memory), outer_(outer) {}

  void call_pack_hook(const at::Tensor& saved) override {
    if (outer_ != nullptr && outer_->makes_again(saved)) {
      again_ = outer_->make_hooks();
      again_->call_pack_hook(saved);
      return;
    }
    device_ = saved.device();
    is_offloaded_ = !parameters_.hold(saved);
    kept_ = is_offloaded_ ? memory_.take(saved.detach()) : saved.detach();
  }

  at::Tensor call_unpack_hook() override {
    if (again_ != nullptr) {
      return again_->call_unpack_hook();
    }
    return is_offloaded_ ? memory_.give_back(kept_, device_) : kept_;
  }

 private:
  const Parameters& parameters_;
  HostMemory& memory_;
  SavedTensorPolicy* outer_;  // asked while tensors are saved only
  std::unique_ptr<SavedVariableHooks> again_;
  at::Tensor kept_;
  at::Device device_ = at::kCPU;
  bool is_offloaded_ = false;
};

}  // namespace

class OffloadedActivations::Policy final : public SavedTensorPolicy {
 public:
  Policy(const Parameters& parameters, HostMemory& memory)
      : parameters_(parameters), memory_(memory), outer_(active_policy()), scope_(this) {}

  std::unique_ptr<SavedVariableHooks> make_hooks() override {
    return std::make_unique<OffloadHooks>(parameters_, memory_, outer_);
  }

 private:
  const Parameters& parameters_;
  HostMemory& memory_;
  SavedTensorPolicy* outer_;
  ScopedPolicy scope_;
};

OffloadedActivations::OffloadedActivations(bool is_on, const Parameters& parameters,
                                           HostMemory& memory) {
  const bool is_in_segment = active_policy() != nullptr && active_policy()->is_of_segment();
  if (is_on && at::GradMode::is_enabled() && !is_in_segment) {
    policy_ = std::make_unique<Policy>(parameters, memory);
  }
}

OffloadedActivations::~OffloadedActivations() = default;

}  // namespace switchyard
