#include "train/step_metrics.h"

#include <string>
#include <vector>

#include <fmt/format.h>

#include <ATen/ATen.h>

#include "config/moe_layers.h"

namespace switchyard {
namespace {

std::vector<int64_t> numbers_of_moe_layers(const Config& config) {
  std::vector<int64_t> numbers;
  const std::vector<bool> layers = moe_layers(config);
  for (size_t i = 0; i < layers.size(); ++i) {
    if (layers[i]) {
      numbers.push_back(static_cast<int64_t>(i));
    }
  }
  for (int64_t i = 0; !layers.empty() && layers.back() && i < config.mtp.num_layers; ++i) {
    numbers.push_back(std::ssize(layers) + i);  // behind the model's own
  }
  return numbers;
}

}  // namespace

StepMetrics measured_by(const StepOutcome& outcome, const Config& config) {
  StepMetrics metrics;
  metrics.loss = {outcome.loss_sum, outcome.loss_weight};
  const auto put_term = [&](const char* name, const std::optional<double>& value) {
    if (value) {
      metrics.auxiliary.emplace_back(name, *value);
    }
  };
  put_term("balance", outcome.balance_loss);
  put_term("step_balance", outcome.step_balance_loss);
  put_term("global_balance", outcome.global_balance_loss);
  put_term("z", outcome.z_loss);
  for (size_t i = 0; i < outcome.further.size(); ++i) {
    const Ratio mean{outcome.further[i].loss_sum, outcome.further[i].loss_weight};
    const std::string name = fmt::format("mtp_{}", i + 1);
    put_term(name.c_str(), mean.value());
  }
  metrics.skipped = !outcome.skipped.empty();
  metrics.grad_norm = outcome.grad_norm;
  metrics.tokens = outcome.num_tokens;
  const std::vector<int64_t> layers = numbers_of_moe_layers(config);
  int64_t routed_copies = 0;
  for (size_t i = 0; i < outcome.tokens_per_expert.size(); ++i) {
    const at::Tensor& counts = outcome.tokens_per_expert[i];
    const auto* first = counts.const_data_ptr<int64_t>();
    metrics.expert_load.push_back(
        ExpertLoad::from_counts(layers[i], std::vector<int64_t>(first, first + counts.numel())));
    routed_copies += metrics.expert_load.back().copies;
  }
  if (outcome.dropped_copies) {
    metrics.dropped =
        Ratio{static_cast<double>(*outcome.dropped_copies), static_cast<double>(routed_copies)};
  }
  return metrics;
}

}  // namespace switchyard
