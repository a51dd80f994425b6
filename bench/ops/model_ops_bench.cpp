// Times the operators of a decoder outside its experts against what libtorch offers for the same
// work, in the same run: see ops_bench.cpp. Usage: model_ops_bench [threads]

#include <cstdlib>
#include <vector>

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <torch/csrc/autograd/autograd.h>

#include "bench/ops/compare.h"
#include "ops/adamw.h"
#include "ops/attention.h"
#include "ops/cpu/kernels.h"
#include "ops/cross_entropy.h"
#include "ops/rms_norm.h"
#include "ops/rope.h"

namespace switchyard {
namespace {

constexpr int64_t kBatch = 4;
constexpr int64_t kSequence = 512;
constexpr int64_t kTokens = kBatch * kSequence;
constexpr int64_t kHidden = 512;
constexpr int64_t kHeads = 8;
constexpr int64_t kKvHeads = 4;
constexpr int64_t kHeadDim = 64;
constexpr int64_t kVocab = 8192;

at::Tensor random(std::vector<int64_t> sizes, at::ScalarType type) {
  return at::randn(sizes).to(type);
}

void attention_ops(at::ScalarType type) {
  const at::Tensor q = random({kTokens, kHeads, kHeadDim}, type).requires_grad_();
  const at::Tensor k = random({kTokens, kKvHeads, kHeadDim}, type).requires_grad_();
  const at::Tensor v = random({kTokens, kKvHeads, kHeadDim}, type).requires_grad_();
  const at::Tensor grad = random({kTokens, kHeads, kHeadDim}, type);
  const auto table = SequenceTable::from_lengths(std::vector<int64_t>(kBatch, kSequence));
  const auto batched = [](const at::Tensor& heads) {
    return heads.view({kBatch, kSequence, -1, kHeadDim}).transpose(1, 2);
  };
  const auto ours = [&] { return attention(q, k, v, table).out; };
  const auto theirs = [&] {
    return at::scaled_dot_product_attention(batched(q), batched(k), batched(v), {}, 0, true, {},
                                            /*enable_gqa=*/true)
        .transpose(1, 2)
        .reshape({kTokens, kHeads, kHeadDim});
  };
  const double flops = 2.0 * kTokens * kSequence * kHeads * kHeadDim;
  compare("attention forward", flops, "GF/s", {{"ours", ours}, {"sdpa", theirs}});
  const auto step = [&](const at::Tensor& out) { torch::autograd::grad({out}, {q, k, v}, {grad}); };
  compare("attention forward and backward", 3 * flops, "GF/s",
          {{"ours", [&] { step(ours()); }}, {"sdpa", [&] { step(theirs()); }}});
}

void decoding(at::ScalarType type) {
  const at::NoGradGuard no_grad;
  for (const int64_t length : {128, 1024, 8192}) {
    const at::Tensor q = random({1, kHeads, kHeadDim}, type);
    const at::Tensor k = random({length, kKvHeads, kHeadDim}, type);
    const at::Tensor v = random({length, kKvHeads, kHeadDim}, type);
    const auto turned = [](const at::Tensor& heads) { return heads.transpose(0, 1).unsqueeze(0); };
    compare(fmt::format("one query, {} keys", length), static_cast<double>(k.nbytes() + v.nbytes()),
            "GB/s",
            {{"ours", [&] { attention_with_cache(q, k, v, length - 1); }},
             {"sdpa", [&] {
                at::scaled_dot_product_attention(turned(q), turned(k), turned(v), {}, 0, false, {},
                                                 true);
              }}});
  }
}

void cross_entropy(at::ScalarType type) {
  const at::Tensor hidden = random({kTokens, kHidden}, type).requires_grad_();
  const at::Tensor weight = random({kVocab, kHidden}, type).mul_(0.05).requires_grad_();
  const at::Tensor labels = at::randint(kVocab, {kTokens}, at::kLong);
  const at::Tensor weights = at::full({kTokens}, 1.0 / kTokens);
  const auto ours = [&] {
    torch::autograd::grad({linear_cross_entropy(hidden, weight, labels, weights).weighted_loss_sum},
                          {hidden, weight});
  };
  const auto theirs = [&] {
    const at::Tensor logits = at::linear(hidden, weight);
    torch::autograd::grad({at::cross_entropy_loss(logits.to(at::kFloat), labels)},
                          {hidden, weight});
  };
  compare("linear and cross-entropy, both ways", 6.0 * kTokens * kHidden * kVocab, "GF/s",
          {{"ours", ours}, {"libtorch", theirs}});
}

void norms(at::ScalarType type) {
  const at::Tensor x = random({kTokens, kHidden}, type).requires_grad_();
  const at::Tensor weight = random({kHidden}, type).requires_grad_();
  const at::Tensor grad = random({kTokens, kHidden}, type);
  const auto theirs = [&] { return at::rms_norm(x, {kHidden}, weight, 1e-6); };
  const auto bytes = static_cast<double>(x.nbytes());
  compare("rms_norm forward", 2 * bytes, "GB/s",
          {{"ours", [&] { rms_norm(x, weight, 1e-6); }}, {"at::rms_norm", theirs}});
  const auto step = [&](const at::Tensor& out) {
    torch::autograd::grad({out}, {x, weight}, {grad});
  };
  compare("rms_norm forward and backward", 5 * bytes, "GB/s",
          {{"ours", [&] { step(rms_norm(x, weight, 1e-6)); }},
           {"at::rms_norm", [&] { step(theirs()); }}});
  const at::Tensor heads = random({kTokens, kHeads, kHeadDim}, type);
  const at::Tensor positions = at::arange(kSequence).repeat({kBatch});
  const auto table = make_rotary_table(kSequence, kHeadDim, 10000, type);
  const at::Tensor cosine = table.cosine.repeat({kBatch, 2}).unsqueeze(1).to(type);
  const at::Tensor sine = table.sine.repeat({kBatch, 2}).unsqueeze(1).to(type);
  compare("rotate", 2 * static_cast<double>(heads.nbytes()), "GB/s",
          {{"ours", [&] { rotate(heads, positions, table); }},
           {"composed", [&] {
              const auto halves = heads.chunk(2, 2);
              at::cat({-halves[1], halves[0]}, 2) * sine + heads* cosine;
            }}});
}

void optimizer() {
  constexpr int64_t kElements = 16 << 20;
  std::vector<at::Tensor> arrays;
  for (int i = 0; i < 8; ++i) {
    arrays.push_back(at::rand({kElements}));
  }
  const AdamwState state{arrays[0], arrays[1], arrays[2], arrays[3], {}};
  AdamwOptions options;
  options.lr = 1e-6;
  const at::Tensor step = at::ones({});
  const double bytes = 7.0 * 4 * kElements;
  compare("adamw_step", bytes, "GB/s",
          {{"ours", [&] { adamw_step(state, options); }},
           {"_fused_adamw_", [&] {
              at::_fused_adamw_({arrays[4]}, {arrays[5]}, {arrays[6]}, {arrays[7]}, {}, {step},
                                1e-6, 0.9, 0.999, 0.0, 1e-8, false, false);
            }}});
  compare("sum_of_squares", 4.0 * kElements, "GB/s",
          {{"ours", [&] { sum_of_squares(arrays[1]); }},
           {"at::norm", [&] { arrays[1].norm().item<float>(); }}});
}

int run(int argc, char** argv) {
  if (argc > 1) {
    at::set_num_threads(std::atoi(argv[1]));
  }
  fmt::print("kernels {}, {} threads; others as multiples of our time\n", cpu_kernels().name,
             at::get_num_threads());
  for (const auto type : {at::kFloat, at::kBFloat16}) {
    fmt::print("{}\n", c10::toString(type));
    attention_ops(type);
    decoding(type);
    cross_entropy(type);
    norms(type);
  }
  optimizer();
  return 0;
}

}  // namespace
}  // namespace switchyard

int main(int argc, char** argv) {
  return switchyard::run(argc, argv);
}
