// Times the scans of state-space layers. Reads names of work from standard input, one a line, does
// each once and answers with its seconds: bench/ops/scan.py asks, and lets its contenders take
// turns. Usage: bench_scan TOKENS THREADS

#include <cmath>
#include <cstdlib>
#include <functional>
#include <iostream>
#include <map>
#include <string>
#include <vector>

#include <fmt/format.h>

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <torch/csrc/autograd/autograd.h>

#include "bench/ops/compare.h"
#include "ops/chunked_scan.h"
#include "ops/gated_delta_rule.h"
#include "ops/selective_scan.h"

namespace switchyard {
namespace {

// Of one layer of Mamba-2 130M, Mamba 130M and a quarter of one of Qwen3-Next.
constexpr int64_t kHeads = 24;
constexpr int64_t kHeadDim = 64;
constexpr int64_t kStateSize = 128;
constexpr int64_t kChannels = 1536;
constexpr int64_t kChannelStateSize = 16;
constexpr int64_t kKeyHeads = 4;
constexpr int64_t kValueHeads = 8;
constexpr int64_t kRuleDim = 128;

at::Tensor leaf(const at::Tensor& tensor) {
  return tensor.detach().requires_grad_();
}

ChunkedScanInputs chunked_inputs(int64_t tokens) {
  return {leaf(at::randn({tokens, kHeads, kHeadDim})),
          leaf(at::softplus(at::randn({tokens, kHeads}))),
          leaf(-at::exp(at::randn({kHeads}))),
          leaf(at::randn({tokens, 1, kStateSize})),
          leaf(at::randn({tokens, 1, kStateSize})),
          leaf(at::randn({kHeads})),
          std::nullopt};
}

SelectiveScanInputs selective_inputs(int64_t tokens) {
  return {leaf(at::randn({tokens, kChannels})),
          leaf(at::softplus(at::randn({tokens, kChannels}))),
          leaf(-at::exp(at::randn({kChannels, kChannelStateSize}))),
          leaf(at::randn({tokens, kChannelStateSize})),
          leaf(at::randn({tokens, kChannelStateSize})),
          leaf(at::randn({kChannels})),
          std::nullopt};
}

DeltaRuleInputs rule_inputs(int64_t tokens) {
  return {leaf(at::randn({tokens, kKeyHeads, kRuleDim})),
          leaf(at::randn({tokens, kKeyHeads, kRuleDim})),
          leaf(at::randn({tokens, kValueHeads, kRuleDim})),
          leaf(-at::softplus(at::randn({tokens, kValueHeads}))),
          leaf(at::sigmoid(at::randn({tokens, kValueHeads}))),
          std::nullopt};
}

// The recurrence of chunked_scan.h as three loops, on one thread for each head.
void plain_recurrence(const ChunkedScanInputs& in) {
  at::Tensor out = at::empty_like(in.x);
  const auto* x = in.x.const_data_ptr<float>();
  const auto* dt = in.dt.const_data_ptr<float>();
  const auto* a = in.a.const_data_ptr<float>();
  const auto* b = in.b.const_data_ptr<float>();
  const auto* c = in.c.const_data_ptr<float>();
  const auto* d = in.d.const_data_ptr<float>();
  auto* to = out.mutable_data_ptr<float>();
  at::parallel_for(0, kHeads, 1, [&](int64_t begin, int64_t end) {
    for (int64_t head = begin; head < end; ++head) {
      std::vector<float> state(kHeadDim * kStateSize, 0.0F);
      for (int64_t token = 0; token < in.x.size(0); ++token) {
        const float step = dt[token * kHeads + head];
        const float decay = std::exp(step * a[head]);
        for (int64_t p = 0; p < kHeadDim; ++p) {
          const int64_t at = (token * kHeads + head) * kHeadDim + p;
          float* row = state.data() + p * kStateSize;
          float sum = d[head] * x[at];
          for (int64_t n = 0; n < kStateSize; ++n) {
            row[n] = decay * row[n] + step * x[at] * b[token * kStateSize + n];
            sum += row[n] * c[token * kStateSize + n];
          }
          to[at] = sum;
        }
      }
    }
  });
}

int run(int argc, char** argv) {
  const int64_t tokens = argc > 1 ? std::atol(argv[1]) : 2048;
  at::set_num_threads(argc > 2 ? std::atoi(argv[2]) : at::get_num_threads());
  const auto table = SequenceTable::from_lengths({tokens});
  const ChunkedScanInputs chunked = chunked_inputs(tokens);
  const SelectiveScanInputs selective = selective_inputs(tokens);
  const DeltaRuleInputs rule = rule_inputs(tokens);
  const auto chunked_out = [&] { return chunked_scan(chunked, table, 128).out; };
  const auto selective_out = [&] { return selective_scan(selective, table).out; };
  const auto rule_out = [&] { return gated_delta_rule(rule, table, 64).out; };
  const auto step = [](const at::Tensor& out, const std::vector<at::Tensor>& leaves) {
    torch::autograd::grad({out}, leaves, {at::ones_like(out)});
  };
  const std::map<std::string, std::function<void()>> work{
      {"mamba2", [&] { chunked_out(); }},
      {"mamba2 recurrence", [&] { plain_recurrence(chunked); }},
      {"mamba2 both ways",
       [&] {
         step(chunked_out(), {chunked.x, chunked.dt, chunked.a, chunked.b, chunked.c, chunked.d});
       }},
      {"mamba", [&] { selective_out(); }},
      {"mamba both ways",
       [&] {
         step(selective_out(),
              {selective.x, selective.dt, selective.a, selective.b, selective.c, selective.d});
       }},
      {"delta rule", [&] { rule_out(); }},
      {"delta rule both ways",
       [&] {
         step(rule_out(), {rule.q, rule.k, rule.v, rule.log_decay, rule.beta});
       }},
  };
  for (std::string name; std::getline(std::cin, name);) {
    fmt::print("{}\n", seconds_of(work.at(name)));
    std::fflush(stdout);
  }
  return 0;
}

}  // namespace
}  // namespace switchyard

int main(int argc, char** argv) {
  return switchyard::run(argc, argv);
}
