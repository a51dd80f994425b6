#include "optim/adamw.h"

#include <utility>

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include "ops/adamw.h"

namespace switchyard {
namespace {

constexpr Site kGradientScale{"adamw.gradient_scale", Purpose::kGradient};

// A part of the state on the device, for as long as this lives: then it is written back to where it
// waits.
class Visit {
 public:
  // `memory`: where it waits; null for the device.
  Visit(at::Tensor waiting, at::Device device, HostMemory* memory)
      : waiting_(std::move(waiting)),
        here_(memory == nullptr ? waiting_ : memory->give_back(waiting_, device)) {}
  ~Visit() {
    if (!here_.is_alias_of(waiting_)) {
      waiting_.copy_(here_);
    }
  }
  Visit(const Visit&) = delete;
  Visit& operator=(const Visit&) = delete;

  const at::Tensor& here() const { return here_; }

 private:
  at::Tensor waiting_;
  at::Tensor here_;
};

}  // namespace

AdamW::AdamW(Parameters& parameters, const OptimizerConfig& settings, HostMemory& memory)
    : parameters_(parameters), settings_(settings), memory_(memory) {
  const auto at_rest = [&](const at::Tensor& state) {
    return settings_.offload ? memory_.take(state) : state;
  };
  for (const auto& storage : parameters.storages()) {
    const auto zeros = [&] {
      return at_rest(at::zeros({storage->num_owned()}, storage->master.options()));
    };
    moments_.push_back({zeros(), zeros()});
    if (!storage->master.is_alias_of(storage->leaf)) {
      storage->master = at_rest(storage->master);
    }
  }
}

void AdamW::step(double lr, double gradient_scale, std::optional<double> weight_decay) {
  const at::NoGradGuard no_grad;
  ++num_steps_;
  AdamwOptions options;
  options.lr = lr;
  options.beta1 = settings_.beta1;
  options.beta2 = settings_.beta2;
  options.epsilon = settings_.epsilon;
  options.gradient_scale = parameters_.groups().ledger().scale(kGradientScale, gradient_scale);
  options.step = num_steps_;
  for (size_t i = 0; i < moments_.size(); ++i) {
    const ParameterStorage& storage = *parameters_.storages()[i];
    const AdamWMoments& moments = moments_[i];
    const bool has_copy = storage.leaf.scalar_type() != storage.master.scalar_type() &&
                          !(parameters_.shards_parameters() && storage.is_divided);
    for (const PieceRange& range : storage.owned) {
      const bool has_decay = storage.pieces[range.piece].spec().has_weight_decay;
      options.weight_decay = has_decay ? weight_decay.value_or(settings_.weight_decay) : 0;
      const auto owned_of = [&](const at::Tensor& all) { return storage.owned_of(all, range); };
      const auto visit = [&](const at::Tensor& state) {
        const bool waits = settings_.offload && !state.is_alias_of(storage.leaf);
        return Visit(owned_of(state), storage.leaf.device(), waits ? &memory_ : nullptr);
      };
      const Visit master = visit(storage.master);
      const Visit first = visit(moments.first);
      const Visit second = visit(moments.second);
      adamw_step({master.here(), owned_of(storage.gradient), first.here(), second.here(),
                  has_copy ? owned_of(storage.leaf) : at::Tensor()},
                 options);
    }
  }
}

}  // namespace switchyard
