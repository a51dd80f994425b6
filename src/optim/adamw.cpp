#include "optim/adamw.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include "ops/adamw.h"

namespace switchyard {
namespace {

constexpr Site kGradientScale{"adamw.gradient_scale", Purpose::kGradient};

}  // namespace

AdamW::AdamW(Parameters& parameters, const OptimizerConfig& settings)
    : parameters_(parameters), settings_(settings) {
  for (const auto& storage : parameters.storages()) {
    const auto zeros = [&] { return at::zeros({storage->num_owned()}, storage->master.options()); };
    moments_.push_back({zeros(), zeros()});
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
  const bool has_copy = parameters_.dtypes().is_mixed();
  for (size_t i = 0; i < moments_.size(); ++i) {
    const ParameterStorage& storage = *parameters_.storages()[i];
    const AdamWMoments& moments = moments_[i];
    for (const PieceRange& range : storage.owned) {
      const bool has_decay = storage.pieces[range.piece].spec().has_weight_decay;
      options.weight_decay = has_decay ? weight_decay.value_or(settings_.weight_decay) : 0;
      const auto owned_of = [&](const at::Tensor& all) { return storage.owned_of(all, range); };
      adamw_step({owned_of(storage.master), owned_of(storage.gradient), owned_of(moments.first),
                  owned_of(moments.second), has_copy ? owned_of(storage.leaf) : at::Tensor()},
                 options);
    }
  }
}

}  // namespace switchyard
