#include "ops/sinkhorn.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include <ATen/ATen.h>

#include "base/shape.h"
#include "ops/float_types.h"

namespace switchyard {
namespace {

constexpr double kSumEpsilon = 1e-8;
constexpr double kTolerance = 1e-4;
constexpr int kMaxRounds = 1000;  // only a huge spread of logits gets here

struct Scales {
  std::vector<double> row;
  std::vector<double> column;
};

Scales balance(const double* cost, int64_t tokens, int64_t num_experts) {
  Scales scales{std::vector<double>(static_cast<size_t>(tokens), 1),
                std::vector<double>(static_cast<size_t>(num_experts), 1)};
  std::vector<double> sums(static_cast<size_t>(num_experts));
  for (int round = 0; round < kMaxRounds; ++round) {
    std::fill(sums.begin(), sums.end(), 0);
    for (int64_t token = 0; token < tokens; ++token) {
      const double* of_token = cost + token * num_experts;
      double sum = 0;
      for (size_t e = 0; e < sums.size(); ++e) {
        sum += scales.column[e] * of_token[e];
      }
      const double scale = 1 / static_cast<double>(tokens) / (sum + kSumEpsilon);
      scales.row[static_cast<size_t>(token)] = scale;
      for (size_t e = 0; e < sums.size(); ++e) {
        sums[e] += scale * of_token[e];
      }
    }
    double change = 0;
    for (size_t e = 0; e < sums.size(); ++e) {
      const double scale = 1 / static_cast<double>(num_experts) / (sums[e] + kSumEpsilon);
      change += std::abs(scale - scales.column[e]) / static_cast<double>(num_experts);
      scales.column[e] = scale;
    }
    if (!(change > kTolerance)) {
      break;
    }
  }
  return scales;
}

}  // namespace

at::Tensor sinkhorn(const at::Tensor& logits) {
  check_float_cpu("sinkhorn: logits", logits);
  check_shape("sinkhorn: logits", logits, {kAnySize, kAnySize});
  const int64_t num_experts = logits.size(1);
  at::Tensor result = logits.detach().to(at::kDouble).exp().contiguous();
  auto* cost = result.mutable_data_ptr<double>();
  const Scales scales = balance(cost, logits.size(0), num_experts);
  for (int64_t i = 0; i < result.numel(); ++i) {
    cost[i] *= scales.column[static_cast<size_t>(i % num_experts)] *
               scales.row[static_cast<size_t>(i / num_experts)];
  }
  return result;
}

}  // namespace switchyard
