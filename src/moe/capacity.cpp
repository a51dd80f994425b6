#include "moe/capacity.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include <ATen/ATen.h>

namespace switchyard {
namespace {

constexpr RowSites kRowIds{{"moe.capacity.expert_ids", Purpose::kStatistics},
                           {"moe.capacity.context_expert_ids", Purpose::kStatistics}};
constexpr RowSites kRowWeights{{"moe.capacity.weights", Purpose::kStatistics},
                               {"moe.capacity.context_weights", Purpose::kStatistics}};

// The copies of one sequence, by expert, in (token, slot) order. [num_experts]
using CopiesOfExpert = std::vector<std::vector<int64_t>>;

CopiesOfExpert copies_of_experts(const int64_t* ids, int64_t first_copy, int64_t end_copy,
                                 int64_t num_experts) {
  CopiesOfExpert copies(static_cast<size_t>(num_experts));
  for (int64_t copy = first_copy; copy < end_copy; ++copy) {
    copies[static_cast<size_t>(ids[copy])].push_back(copy);
  }
  return copies;
}

// Leaves at most `capacity` copies. Weights are compared in fp32: those of two tokens that are
// equal in truth, such as a word said twice at the start, may differ in the last bit of fp64, and
// then the layout would decide.
void drop_copies(std::vector<int64_t>& copies, int64_t capacity, CapacityDrop drop,
                 const float* weights) {
  if (static_cast<int64_t>(copies.size()) <= capacity) {
    return;
  }
  if (drop == CapacityDrop::kWeight) {
    std::stable_sort(copies.begin(), copies.end(),
                     [weights](int64_t a, int64_t b) { return weights[a] > weights[b]; });
  }
  copies.resize(static_cast<size_t>(capacity));
}

}  // namespace

int64_t expert_capacity(int64_t length, int64_t top_k, int64_t num_experts, double factor) {
  const double share =
      static_cast<double>(length * top_k) / static_cast<double>(num_experts) * factor;
  // A token chooses an expert once: no expert can get more copies than there are tokens.
  return static_cast<int64_t>(std::min(std::ceil(share), static_cast<double>(length)));
}

KeptCopies keep_capacity(const Routing& routing, const RoutingConfig& config,
                         const SequenceTable& table, const TokenRanges& own,
                         const RowRanks& ranks) {
  const int64_t top_k = routing.expert_ids.size(1);
  const int64_t num_experts = routing.logits.size(1);
  const at::Tensor ids = ranks.gather(routing.expert_ids, table, kRowIds);
  const at::Tensor weights =
      ranks.gather(routing.weights.detach().to(at::kFloat), table, kRowWeights);

  KeptCopies kept;
  at::Tensor row = at::full_like(ids, -1);  // [row tokens, top_k], right for this rank's tokens
  auto* kept_id = row.mutable_data_ptr<int64_t>();
  if (config.capacity_padding) {
    kept.padding_rows.assign(static_cast<size_t>(num_experts), 0);
  }
  for (int64_t i = 0; i < table.num_sequences(); ++i) {
    const int64_t start = table.starts[static_cast<size_t>(i)];
    const int64_t end = start + table.length(i);
    if (own.count_before(start) == own.count_before(end)) {
      continue;  // none of its tokens is ours
    }
    const int64_t capacity =
        expert_capacity(table.length(i), top_k, num_experts, config.capacity_factor);
    CopiesOfExpert copies =
        copies_of_experts(ids.const_data_ptr<int64_t>(), start * top_k, end * top_k, num_experts);
    for (size_t expert = 0; expert < copies.size(); ++expert) {
      drop_copies(copies[expert], capacity, config.capacity_drop, weights.const_data_ptr<float>());
      for (const int64_t copy : copies[expert]) {
        kept_id[copy] = static_cast<int64_t>(expert);
      }
      if (config.capacity_padding && own.contains(start)) {
        kept.padding_rows[expert] += capacity - static_cast<int64_t>(copies[expert].size());
      }
    }
  }
  kept.expert_ids = own.select(row);
  kept.num_dropped = table.num_real(own) * top_k - kept.expert_ids.ge(0).sum().item<int64_t>();
  return kept;
}

}  // namespace switchyard
