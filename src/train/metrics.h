#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "train/append_file.h"

namespace switchyard {

// A quotient that keeps both of its parts: what was measured, and over how much.
struct Ratio {
  double numerator = 0;
  double denominator = 0;

  std::optional<double> value() const;  // nothing over a denominator of zero
};

// How one MoE layer's token copies fell on its experts, over the whole global batch.
struct ExpertLoad {
  int64_t layer = 0;
  int64_t num_experts = 0;
  int64_t copies = 0;   // of real tokens, before any dropping
  int64_t busiest = 0;  // copies of the expert with the most
  int64_t idle = 0;     // experts with none

  static ExpertLoad from_counts(int64_t layer, const std::vector<int64_t>& copies_per_expert);

  Ratio max_over_mean() const;  // busiest / (copies / num_experts): 1 when balanced
  Ratio idle_share() const;     // idle / num_experts, of a layer that got any copy
};

// The routed experts' products of the forward pass, of one rank.
struct ExpertMatmul {
  double seconds = 0;
  double flops = 0;
  double peak_tflops = 0;  // what the rank computes at best

  Ratio tflops() const { return {flops * 1e-12, seconds}; }
  Ratio efficiency() const { return {flops * 1e-12, seconds * peak_tflops}; }
};

// What this rank's transfers of one purpose took in a step.
struct TransferTime {
  double waited_s = 0;  // for them, computing nothing
  double hidden_s = 0;  // beside, while it computed

  Ratio hidden_share() const { return {hidden_s, waited_s + hidden_s}; }
};

// What one optimizer step reports: one line of metrics.jsonl. Counts are over all ranks, real
// tokens only; times and FLOPs are this rank's.
struct StepMetrics {
  int64_t step = 0;  // optimizer steps done, this one included: the first is 1
  Ratio loss;        // weighted token losses / weights, auxiliary terms left out
  std::vector<std::pair<std::string, double>> auxiliary;  // as added to the objective
  double lr = 0;
  double grad_norm = 0;       // before clipping
  bool skipped = false;       // loss or gradient was not finite, so that the step changed nothing
  int64_t skipped_steps = 0;  // of the run so far, this one included
  int64_t tokens = 0;
  std::vector<ExpertLoad> expert_load;  // MoE layers, in order
  std::optional<Ratio> dropped;         // dropped / routed copies, where dropping exists
  std::optional<Ratio> eval_loss;       // where an evaluation followed this step
  double step_time_s = 0;
  double flops_per_rank = 0;
  std::optional<TransferTime> dispatch;  // models with experts
  std::optional<TransferTime> combine;
  std::optional<ExpertMatmul> expert_matmul;
};

// One JSON object, without a line end. Each ratio stands beside its parts ("loss", "loss_sum",
// "loss_weight"); one over zero items is null. Doubles read back to the same bits. JSON has no word
// for what is not finite, so that is a string: "NaN", "Infinity", "-Infinity".
std::string to_json(const StepMetrics& metrics);

// Keys whose values depend on the clock, and are the last of each line; all other values of a
// resumed run equal those of an uninterrupted one.
constexpr std::array<std::string_view, 15> kTimeKeys = {"step_time_s",
                                                        "tokens_per_s",
                                                        "tflops_per_rank",
                                                        "flops_per_rank",
                                                        "dispatch_share",
                                                        "dispatch_time_s",
                                                        "dispatch_hidden_s",
                                                        "combine_share",
                                                        "combine_time_s",
                                                        "combine_hidden_s",
                                                        "expert_matmul_share",
                                                        "expert_matmul_time_s",
                                                        "expert_matmul_efficiency",
                                                        "expert_matmul_tflops",
                                                        "peak_tflops"};

// The same as numbers with TensorBoard tags ("loss", "aux/balance",
// "experts/max_over_mean/layer_2"); values that do not exist are left out.
std::vector<std::pair<std::string, double>> to_scalars(const StepMetrics& metrics);

// metrics.jsonl of a run, one line per step, for one writer. Throws FileError.
class MetricsFile {
 public:
  // Continues after `resume_step` steps (0: from the start): cuts off the lines of later steps,
  // which a killed run left, and a torn last line. Reads only as much of the file as it cuts.
  MetricsFile(const std::string& path, int64_t resume_step);

  void write(const StepMetrics& metrics);
  // Returns when all lines are on disk. Before a checkpoint is committed, so that a resumed run
  // finds the line of every step that the checkpoint contains.
  void sync() { file_.sync(); }

 private:
  AppendFile file_;
};

}  // namespace switchyard
