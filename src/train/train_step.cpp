#include "train/train_step.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include "optim/clip.h"
#include "optim/gradients.h"
#include "optim/publish.h"
#include "train/model_stages.h"
#include "train/non_finite.h"

namespace switchyard {
namespace {

constexpr Site kBatchTotals{"step.batch_totals", Purpose::kStatistics};
constexpr Site kLossTotals{"step.loss_totals", Purpose::kStatistics};
constexpr Site kLossOfLastStage{"step.loss_of_last_stage", Purpose::kStatistics};
constexpr Site kLayerTotals{"step.layer_totals", Purpose::kStatistics};

// Each auxiliary term of a layer, and where its mean over layers goes.
using Term = std::pair<at::Tensor MoeStatistics::*, std::optional<double> StepOutcome::*>;
constexpr std::array<Term, 4> kTerms = {{
    {&MoeStatistics::balance_loss, &StepOutcome::balance_loss},
    {&MoeStatistics::step_balance_loss, &StepOutcome::step_balance_loss},
    {&MoeStatistics::global_balance_loss, &StepOutcome::global_balance_loss},
    {&MoeStatistics::z_loss, &StepOutcome::z_loss},
}};

// Brings losses, which only the last pipeline stage knows, to the others.
void share_last_losses(const at::Tensor& losses, const Group& pipeline) {
  pipeline.all_reduce(losses, kLossOfLastStage);
}

// Sums of one step on this rank, brought together over ranks in a few collectives. Every rank
// counts in the layers it has.
class StepTotals {
 public:
  // One layer per MoE layer of the model.
  StepTotals(const std::vector<int64_t>& num_experts, int64_t num_predictions)
      : loss_sums_(static_cast<size_t>(1 + num_predictions)), layers_(num_experts.size()) {
    for (size_t i = 0; i < layers_.size(); ++i) {
      layers_[i].tokens_per_expert = at::zeros({num_experts[i]}, at::kLong);
    }
  }

  void add(const ModelOutput& output) {
    if (output.loss_sum.defined()) {
      loss_sums_[0] += output.loss_sum.item<double>();
    }
    for (size_t i = 0; i < output.further_loss_sums.size(); ++i) {
      loss_sums_.at(1 + i) += output.further_loss_sums[i].item<double>();
    }
    for (size_t i = 0; i < layers_.size(); ++i) {
      for (const auto& [member, unused] : kTerms) {
        add_to(layers_[i].*member, output.moe[i].*member);
      }
      add_to(layers_[i].dropped_copies, output.moe[i].dropped_copies);
      add_to(layers_[i].tokens_per_expert, output.moe[i].tokens_per_expert);
    }
  }

  void reduce_into(StepOutcome& outcome, const Groups& groups) {
    const at::Tensor losses = at::tensor(loss_sums_, at::kDouble);
    groups[GroupName::kDataContext].all_reduce(losses, kLossTotals);
    share_last_losses(losses, groups[GroupName::kPipeline]);
    const auto* loss = losses.const_data_ptr<double>();
    outcome.loss_sum = *loss;
    for (EvalOutcome& further : outcome.further) {
      further.loss_sum = *++loss;
    }
    if (layers_.empty()) {
      return;
    }
    // Per layer: each term and dropped copies, both after how many ranks have them; loads. Counts
    // are exact in fp64. Layers may differ in their number of experts.
    std::vector<at::Tensor> parts;
    for (const MoeStatistics& layer : layers_) {
      for (const auto& [member, unused] : kTerms) {
        parts.push_back(counted(layer.*member));
      }
      parts.push_back(counted(layer.dropped_copies));
      parts.push_back(layer.tokens_per_expert.to(at::kDouble));
    }
    const at::Tensor totals = at::cat(parts);
    groups[GroupName::kWorld].all_reduce(totals, kLayerTotals);
    read(totals, outcome);
  }

 private:
  // Takes the totals apart in the order in which reduce_into() put them together.
  void read(const at::Tensor& totals, StepOutcome& outcome) const {
    const auto* next = totals.const_data_ptr<double>();
    const auto take = [&next] {
      const double num_ranks = *next++;
      const double sum = *next++;
      return num_ranks > 0 ? std::optional(sum) : std::nullopt;
    };
    std::array<Mean, kTerms.size()> means;
    for (const MoeStatistics& layer : layers_) {
      for (Mean& mean : means) {
        mean.add(take());
      }
      if (const auto dropped = take()) {
        outcome.dropped_copies =
            outcome.dropped_copies.value_or(0) + static_cast<int64_t>(*dropped);
      }
      at::Tensor loads = at::empty_like(layer.tokens_per_expert);
      std::transform(next, next + loads.numel(), loads.mutable_data_ptr<int64_t>(),
                     [](double count) { return static_cast<int64_t>(count); });
      next += loads.numel();
      outcome.tokens_per_expert.push_back(loads);
    }
    for (size_t term = 0; term < kTerms.size(); ++term) {
      outcome.*kTerms[term].second = means[term].value();
    }
  }

  // Over the layers that have a term.
  struct Mean {
    double sum = 0;
    double count = 0;

    void add(const std::optional<double>& of_layer) {
      sum += of_layer.value_or(0);
      count += of_layer ? 1 : 0;
    }
    std::optional<double> value() const {
      return count > 0 ? std::optional(sum / count) : std::nullopt;
    }
  };

  static void add_to(at::Tensor& sum, const at::Tensor& value) {
    if (value.defined()) {
      sum = sum.defined() ? sum + value : value;
    }
  }
  // [2] whether this rank has it, and the value
  static at::Tensor counted(const at::Tensor& value) {
    return at::tensor({value.defined() ? 1.0 : 0.0, value.defined() ? value.item<double>() : 0.0},
                      at::kDouble);
  }

  std::vector<double> loss_sums_;  // of the tokens' losses, then of each further prediction's
  std::vector<MoeStatistics> layers_;
};

}  // namespace

Denominators count_batch(const MicroBatches& micro_batches, const Groups& groups) {
  const int64_t num_further = micro_batches.size() > 0 ? std::ssize(micro_batches[0].further) : 0;
  const at::Tensor totals = at::zeros({2 + num_further}, at::kDouble);
  auto* total = totals.mutable_data_ptr<double>();
  for (int64_t i = 0; i < micro_batches.size(); ++i) {
    const TokenBatch& batch = micro_batches[i];
    total[0] += batch.weights.sum(at::kDouble).item<double>();
    total[1] += static_cast<double>(batch.table.num_real(batch.table.held));
    for (int64_t depth = 0; depth < num_further; ++depth) {
      total[2 + depth] +=
          batch.further[static_cast<size_t>(depth)].weights.sum(at::kDouble).item<double>();
    }
  }
  groups[GroupName::kDataContext].all_reduce(totals, kBatchTotals);
  return {total[0], total[1], std::vector<double>(total + 2, total + 2 + num_further)};
}

namespace {

StepOutcome compute_gradients_with(const LanguageModel& model, Parameters& parameters,
                                   const MicroBatches& micro_batches, StepMemos memos,
                                   MakeSchedule make_schedule) {
  const Groups& groups = parameters.groups();
  const Denominators denominators = count_batch(micro_batches, groups);
  StepTotals totals(model.num_experts(), model.num_predictions());
  ModelStages stages(model, &parameters, micro_batches, denominators, memos,
                     [&totals](int64_t, const ModelOutput& output) { totals.add(output); });
  const PipelineShape shape = pipeline_shape(model, micro_batches.size());
  (void)run_schedule(make_schedule(shape), stages, model.pipeline());
  StepOutcome outcome;
  outcome.loss_weight = denominators.loss_weight;
  outcome.num_tokens = static_cast<int64_t>(denominators.tokens);
  for (const double weight : denominators.further_weights) {
    outcome.further.push_back({.loss_weight = weight});
  }
  totals.reduce_into(outcome, groups);
  reduce_gradients(parameters);
  return outcome;
}

}  // namespace

StepOutcome compute_gradients(const LanguageModel& model, Parameters& parameters,
                              const MicroBatches& micro_batches,
                              const std::vector<RoutingMemos>& memos, MakeSchedule make_schedule) {
  return compute_gradients_with(model, parameters, micro_batches, StepMemos(memos), make_schedule);
}

StepOutcome compute_gradients(const LanguageModel& model, Parameters& parameters,
                              const MicroBatches& micro_batches, MakeSchedule make_schedule) {
  return compute_gradients_with(model, parameters, micro_batches, StepMemos(model), make_schedule);
}

StepOutcome train_step(LanguageModel& model, Parameters& parameters, AdamW& optimizer,
                       const MicroBatches& micro_batches, const StepRates& rates,
                       MakeSchedule make_schedule) {
  StepOutcome outcome = compute_gradients(model, parameters, micro_batches, make_schedule);
  const bool is_loss_finite = std::isfinite(outcome.loss_sum) && std::isfinite(outcome.loss_weight);
  outcome.grad_norm = gradient_norm(parameters, is_loss_finite);
  if (std::isfinite(outcome.grad_norm)) {
    optimizer.step(rates.learning_rate, clip_coefficient(outcome.grad_norm, rates.clip_grad_norm),
                   rates.weight_decay);
    publish_parameters(parameters);
    model.update_expert_biases(outcome.tokens_per_expert);
  } else {
    outcome.skipped = describe_non_finite(parameters, outcome);
  }
  clear_gradients(parameters);
  return outcome;
}

EvalOutcome evaluate_batches(const LanguageModel& model, const MicroBatches& micro_batches) {
  const at::NoGradGuard no_grad;
  EvalOutcome outcome;
  StepMemos memos(model);
  for (int64_t i = 0; i < micro_batches.size(); ++i) {
    outcome.loss_weight += micro_batches[i].weights.sum(at::kDouble).item<double>();
  }
  const Denominators denominators;
  ModelStages stages(model, nullptr, micro_batches, denominators, memos,
                     [&outcome](int64_t, const ModelOutput& output) {
                       outcome.loss_sum +=
                           output.loss_sum.defined() ? output.loss_sum.item<double>() : 0;
                     });
  const PipelineShape shape = pipeline_shape(model, micro_batches.size());
  (void)run_schedule(forward_only(shape), stages, model.pipeline());
  const at::Tensor loss = at::full({1}, outcome.loss_sum, at::kDouble);
  share_last_losses(loss, model.pipeline());
  outcome.loss_sum = loss.item<double>();
  return outcome;
}

}  // namespace switchyard
