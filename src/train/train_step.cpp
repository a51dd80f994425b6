#include "train/train_step.h"

#include <cmath>

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include "optim/clip.h"
#include "optim/gradients.h"
#include "train/non_finite.h"

namespace switchyard {
namespace {

constexpr Site kBatchTotals{"step.batch_totals", Purpose::kStatistics};
constexpr Site kLossTotals{"step.loss_totals", Purpose::kStatistics};
constexpr Site kLayerTotals{"step.layer_totals", Purpose::kStatistics};

// Sums of one step on this rank, brought together over ranks in two collectives.
class StepTotals {
 public:
  void add(const ModelOutput& output) {
    loss_sum_ += output.loss_sum.item<double>();
    layers_.resize(output.moe.size());
    for (size_t i = 0; i < layers_.size(); ++i) {
      const MoeStatistics& from = output.moe[i];
      add_to(layers_[i].tokens_per_expert, from.tokens_per_expert);
      add_to(layers_[i].balance_loss, from.balance_loss);
      add_to(layers_[i].z_loss, from.z_loss);
    }
  }

  void reduce_into(StepOutcome& outcome, const Groups& groups) {
    const at::Tensor loss = at::full({1}, loss_sum_, at::kDouble);
    groups[GroupName::kDataContext].all_reduce(loss, kLossTotals);
    outcome.loss_sum = loss.item<double>();
    if (layers_.empty()) {
      return;
    }
    // Per layer: balance loss, z-loss, counts; counts are exact in fp64.
    std::vector<at::Tensor> rows;
    for (const MoeStatistics& layer : layers_) {
      rows.push_back(at::cat({as_double(layer.balance_loss), as_double(layer.z_loss),
                              layer.tokens_per_expert.to(at::kDouble)}));
    }
    const at::Tensor totals = at::stack(rows);  // [layers, 2 + num_experts]
    groups[GroupName::kDataContextTensor].all_reduce(totals, kLayerTotals);
    const at::Tensor means = totals.mean(0);
    if (layers_[0].balance_loss.defined()) {
      outcome.balance_loss = means[0].item<double>();
    }
    if (layers_[0].z_loss.defined()) {
      outcome.z_loss = means[1].item<double>();
    }
    for (int64_t i = 0; i < totals.size(0); ++i) {
      outcome.tokens_per_expert.push_back(totals[i].slice(0, 2).to(at::kLong));
    }
  }

 private:
  static void add_to(at::Tensor& sum, const at::Tensor& value) {
    if (value.defined()) {
      sum = sum.defined() ? sum + value : value;
    }
  }
  static at::Tensor as_double(const at::Tensor& value) {
    return value.defined() ? value.to(at::kDouble).view({1}) : at::zeros({1}, at::kDouble);
  }

  double loss_sum_ = 0;
  std::vector<MoeStatistics> layers_;
};

}  // namespace

Denominators count_batch(const std::vector<TokenBatch>& micro_batches, const Groups& groups) {
  const at::Tensor totals = at::zeros({2}, at::kDouble);
  auto* total = totals.mutable_data_ptr<double>();
  for (const TokenBatch& batch : micro_batches) {
    total[0] += batch.weights.sum(at::kDouble).item<double>();
    total[1] += static_cast<double>(batch.table.num_real_tokens());
  }
  groups[GroupName::kDataContext].all_reduce(totals, kBatchTotals);
  return {total[0], total[1]};
}

StepOutcome compute_gradients(const LanguageModel& model, Parameters& parameters,
                              const std::vector<TokenBatch>& micro_batches,
                              const std::vector<RoutingMemos>& memos) {
  const Groups& groups = parameters.groups();
  const Denominators denominators = count_batch(micro_batches, groups);
  StepTotals totals;
  for (size_t i = 0; i < micro_batches.size(); ++i) {
    const ModelOutput output = model.forward(micro_batches[i], denominators, memos[i]);
    output.objective.backward();
    absorb_gradients(parameters);
    totals.add(output);
  }
  StepOutcome outcome;
  outcome.loss_weight = denominators.loss_weight;
  outcome.num_tokens = static_cast<int64_t>(denominators.tokens);
  totals.reduce_into(outcome, groups);
  reduce_gradients(parameters);
  return outcome;
}

StepOutcome compute_gradients(const LanguageModel& model, Parameters& parameters,
                              const std::vector<TokenBatch>& micro_batches) {
  std::vector<RoutingMemos> memos;
  for (size_t i = 0; i < micro_batches.size(); ++i) {
    memos.push_back(model.new_memos());
  }
  return compute_gradients(model, parameters, micro_batches, memos);
}

StepOutcome train_step(LanguageModel& model, Parameters& parameters, AdamW& optimizer,
                       const std::vector<TokenBatch>& micro_batches, const StepRates& rates) {
  StepOutcome outcome = compute_gradients(model, parameters, micro_batches);
  const bool is_loss_finite = std::isfinite(outcome.loss_sum) && std::isfinite(outcome.loss_weight);
  outcome.grad_norm = gradient_norm(parameters, is_loss_finite);
  if (std::isfinite(outcome.grad_norm)) {
    optimizer.step(rates.learning_rate, clip_coefficient(outcome.grad_norm, rates.clip_grad_norm),
                   rates.weight_decay);
    model.update_expert_biases(outcome.tokens_per_expert);
  } else {
    outcome.skipped = describe_non_finite(parameters, outcome);
  }
  clear_gradients(parameters);
  return outcome;
}

EvalOutcome evaluate_batches(const LanguageModel& model,
                             const std::vector<TokenBatch>& micro_batches) {
  const at::NoGradGuard no_grad;
  EvalOutcome outcome;
  for (const TokenBatch& batch : micro_batches) {
    outcome.loss_sum += model.forward(batch, {}).loss_sum.item<double>();
    outcome.loss_weight += batch.weights.sum(at::kDouble).item<double>();
  }
  return outcome;
}

}  // namespace switchyard
