// One contender of bench/compare_steps.py: whole training steps (forward, backward, clipping,
// AdamW) of a Mixture-of-Experts model on random tokens. Usage:
//     train_step fp32|bf16 [threads]
//
// Speaks the protocol of bench/peer_step.py: prints a JSON line when it is ready, makes one step
// for each line "step" and prints its seconds (on the clock, and of all processors together), and
// at the end of its input prints its peak memory: the most that was resident at once, less what was
// before the model was made.
#include "train/train_step.h"

#include <chrono>
#include <cstdlib>
#include <ctime>
#include <fstream>
#include <iostream>
#include <string>

#include <fmt/format.h>

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include "model/language_model.h"
#include "ops/cpu/kernels.h"
#include "optim/adamw.h"

namespace switchyard {
namespace {

constexpr int64_t kBatch = 4;
constexpr int64_t kSequence = 512;

// The shape that the peers train; they norm queries and keys too (Qwen3-MoE).
Config bench_config(Precision precision) {
  Config config;
  config.model.num_layers = 6;
  config.model.hidden_size = 512;
  config.model.num_attention_heads = 8;
  config.model.num_query_groups = 4;
  config.model.head_dim = 64;
  config.model.vocab_size = 8192;
  config.attention.qk_norm = QkNormKind::kHead;
  config.moe.num_experts = 32;
  config.moe.top_k = 4;
  config.moe.ffn_hidden_size = 256;
  config.moe.aux_loss_coeff = 1e-2;
  config.train.precision = precision;
  config.optimizer.lr = 1e-4;
  return config;
}

TokenBatch random_tokens(const Config& config) {
  constexpr int64_t kIgnored = -100;
  TokenBatch batch;
  at::manual_seed(0);
  const at::Tensor tokens = at::randint(config.model.vocab_size, {kBatch, kSequence}, at::kLong);
  at::Tensor labels = at::full({kBatch, kSequence}, kIgnored, at::kLong);
  labels.slice(1, 0, kSequence - 1).copy_(tokens.slice(1, 1));
  batch.tokens = tokens.flatten();
  batch.labels = labels.flatten();
  batch.weights = (batch.labels != kIgnored).to(at::kFloat);
  batch.table = SequenceTable::from_lengths(std::vector<int64_t>(kBatch, kSequence));
  return batch;
}

// A line of /proc/self/status in MB: "VmRSS", "VmHWM".
double resident_mb(const std::string& key) {
  std::ifstream status("/proc/self/status");
  std::string name;
  double kilobytes = 0;
  while (status >> name) {
    if (name == key + ":" && status >> kilobytes) {
      return kilobytes / 1024;
    }
    status.ignore(1 << 12, '\n');
  }
  return 0;
}

// Lets VmHWM count from now on.
void reset_peak() {
  std::ofstream("/proc/self/clear_refs") << "5";
}

void run(Precision precision) {
  reset_peak();
  const double before = resident_mb("VmRSS");
  const Config config = bench_config(precision);
  const auto groups = Groups::single();
  Parameters parameters(*groups, Dtypes::of(precision), 1);
  LanguageModel model(parameters, config);
  AdamW optimizer(parameters, config.optimizer);
  const std::vector<TokenBatch> batches = {random_tokens(config)};
  fmt::print(R"({{"parameters": {}, "kernels": "{}"}})"
             "\n",
             parameters.logical_numel(), cpu_kernels().name);
  std::fflush(stdout);
  for (std::string line; std::getline(std::cin, line) && line == "step";) {
    const auto start = std::chrono::steady_clock::now();
    const std::clock_t cpu_start = std::clock();
    const StepOutcome outcome =
        train_step(model, parameters, optimizer, batches, {config.optimizer.lr, 1.0, std::nullopt});
    const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - start;
    const double cpu_taken = static_cast<double>(std::clock() - cpu_start) / CLOCKS_PER_SEC;
    fmt::print(R"({{"seconds": {}, "cpu_seconds": {}, "loss": {}}})", taken.count(), cpu_taken,
               outcome.loss());
    fmt::print("\n");
    std::fflush(stdout);
  }
  fmt::print(R"({{"peak_mb": {}}})"
             "\n",
             resident_mb("VmHWM") - before);
}

}  // namespace
}  // namespace switchyard

int main(int argc, char** argv) {
  const std::string dtype = argc > 1 ? argv[1] : "";
  if (dtype != "fp32" && dtype != "bf16") {
    fmt::print(stderr, "usage: train_step fp32|bf16 [threads]\n");
    return 2;
  }
  if (argc > 2) {
    at::set_num_threads(std::atoi(argv[2]));
  }
  switchyard::run(dtype == "fp32" ? switchyard::Precision::kFp32 : switchyard::Precision::kBf16);
  return 0;
}
