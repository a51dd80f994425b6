#pragma once

#include <optional>
#include <string>
#include <vector>

#include "model/language_model.h"
#include "optim/adamw.h"
#include "pipeline/schedule.h"
#include "train/micro_batches.h"

namespace switchyard {

// The loss of a batch, over its weights.
struct EvalOutcome {
  double loss_sum = 0;
  double loss_weight = 0;
};

// What one optimizer step measured, over the whole global batch; equal on all ranks. Every mean is
// a sum over the batch divided by a sum over the batch.
struct StepOutcome {
  double loss_sum = 0;     // sum of weight x cross-entropy, nats, before the update
  double loss_weight = 0;  // sum of the weights
  int64_t num_tokens = 0;  // real tokens
  // Of each module of multi-token prediction: the same sums over what it foretells.
  std::vector<EvalOutcome> further = {};
  double grad_norm = 0;  // before clipping
  // Means over the MoE layers that have the term, before its coefficient.
  std::optional<double> balance_loss;
  std::optional<double> step_balance_loss;
  std::optional<double> global_balance_loss;
  std::optional<double> z_loss;
  std::optional<int64_t> dropped_copies;      // over all MoE layers, where there is a capacity
  std::vector<at::Tensor> tokens_per_expert;  // per MoE layer [num_experts] int64, before dropping
  std::string skipped;  // why the step was not made (train/non_finite.h); "" when it was

  double loss() const { return loss_weight > 0 ? loss_sum / loss_weight : 0; }  // the mean
};

// Sums over the global batch: one number per rank of dp x cp, added up. Collective over dp x cp.
Denominators count_batch(const MicroBatches& micro_batches, const Groups& groups);

// Forward and backward of all micro-batches, leaving the reduced gradient of the objective in
// `parameters`; outcome without grad_norm. The gradient is the same however the global batch is cut
// into micro-batches and ranks, and whatever schedule takes them through a pipeline.
// `micro_batches`: this rank's, of each row its share among the ranks of cp (TokenBatch::share);
// every rank has as many. Collective over the world.
StepOutcome compute_gradients(const LanguageModel& model, Parameters& parameters,
                              const MicroBatches& micro_batches,
                              MakeSchedule make_schedule = one_forward_one_backward);

// As compute_gradients, with the expert ids of each micro-batch replayed or recorded.
StepOutcome compute_gradients(const LanguageModel& model, Parameters& parameters,
                              const MicroBatches& micro_batches,
                              const std::vector<RoutingMemos>& memos,
                              MakeSchedule make_schedule = one_forward_one_backward);

struct StepRates {
  double learning_rate = 0;
  double clip_grad_norm = 0;           // 0: no clipping
  std::optional<double> weight_decay;  // in place of the settings'
};

// One whole optimizer step: gradients, norm, clipping, AdamW, selection biases. When loss or
// gradient is not finite on any rank, all ranks skip the step: weights, moments, the optimizer's
// count of steps and selection biases stay as they are, the gradients are dropped, and the outcome
// says why. Collective over the world.
StepOutcome train_step(LanguageModel& model, Parameters& parameters, AdamW& optimizer,
                       const MicroBatches& micro_batches, const StepRates& rates,
                       MakeSchedule make_schedule = one_forward_one_backward);

// Sums of a batch's token losses over this rank's micro-batches, not yet over dp x cp; equal over
// tp and the pipeline. Collective over those and the ranks that share experts.
EvalOutcome evaluate_batches(const LanguageModel& model, const MicroBatches& micro_batches);

}  // namespace switchyard
