#include "moe/balance.h"

#include <ATen/ATen.h>

#include "ops/top_k.h"

namespace switchyard {
namespace {

constexpr Site kStepLoads{"moe.balance.step_loads", Purpose::kStatistics};
constexpr RowSites kSequenceCounts{{"moe.balance.sequence_counts", Purpose::kStatistics},
                                   {"moe.balance.context_counts", Purpose::kStatistics}};
constexpr Site kBalanceScale{"moe.balance.scale"};
constexpr Site kSetScale{"moe.balance.set_scale"};
constexpr Site kZLossScale{"moe.z_loss.scale"};

// For each of the tokens its sequence; padding gets num_sequences. [tokens] int64
at::Tensor sequence_of_token(const SequenceTable& table, const TokenRanges& tokens) {
  const at::Tensor ids = tokens.select(table.sequence_ids());
  return at::where(ids < 0, at::full_like(ids, table.num_sequences()), ids);
}

// Copies per sequence and expert; the last row collects padding. [num_sequences + 1, num_experts]
at::Tensor count_copies(const at::Tensor& expert_ids, const at::Tensor& sequences,
                        int64_t num_sequences, int64_t num_experts) {
  at::Tensor counts = at::zeros({num_sequences + 1, num_experts}, at::kLong);
  auto* count = counts.mutable_data_ptr<int64_t>();
  const at::Tensor ids = expert_ids.contiguous();
  const auto* id = ids.const_data_ptr<int64_t>();
  const auto* sequence = sequences.const_data_ptr<int64_t>();
  const int64_t top_k = ids.size(1);
  for (int64_t token = 0; token < ids.size(0); ++token) {
    for (int64_t slot = 0; slot < top_k; ++slot) {
      ++count[sequence[token] * num_experts + id[token * top_k + slot]];
    }
  }
  return counts;
}

}  // namespace

at::Tensor count_tokens_per_expert(const Routing& routing, const ForwardContext& context,
                                   const TokenRanges& own) {
  const int64_t num_sequences = context.table.num_sequences();
  return count_copies(routing.expert_ids, sequence_of_token(context.table, own), num_sequences,
                      routing.logits.size(1))
      .narrow(0, 0, num_sequences)
      .sum(0);
}

at::Tensor sequence_balance_loss(const Routing& routing, const ForwardContext& context,
                                 const TokenRanges& own, const RowRanks& ranks) {
  const at::Tensor& probabilities = routing.probabilities;  // [tokens, num_experts]
  const int64_t num_experts = probabilities.size(1);
  const int64_t top_k = routing.expert_ids.size(1);
  const int64_t num_sequences = context.table.num_sequences();
  const at::Tensor sequences = sequence_of_token(context.table, own);  // [tokens]
  const at::Tensor ids = top_k_ids(probabilities.detach(), top_k);
  at::Tensor counts = count_copies(ids, sequences, num_sequences, num_experts);
  ranks.all_reduce(counts, context.table, kSequenceCounts);
  counts[num_sequences].zero_();

  // The loss is linear in the probabilities: each token's are weighted by its sequence's counts.
  at::Tensor factors = counts.to(probabilities.scalar_type());  // [num_sequences + 1, num_experts]
  for (int64_t i = 0; i < num_sequences; ++i) {
    const double scale = static_cast<double>(num_experts) /
                         static_cast<double>(top_k * context.table.length(i)) /
                         context.num_batch_tokens;
    factors[i].mul_(ranks.tensor.ledger().scale(kBalanceScale, scale));
  }
  return (probabilities * factors.index_select(0, sequences)).sum();
}

at::Tensor count_step_loads(const Routing& routing, const ForwardContext& context,
                            const TokenRanges& own, const Group& all_ranks) {
  const int64_t num_experts = routing.probabilities.size(1);
  const int64_t top_k = routing.expert_ids.size(1);
  const int64_t num_real = context.table.num_real(own);
  const at::Tensor ids =
      top_k_ids(routing.probabilities.detach().narrow(0, 0, num_real), top_k);  // [real, top_k]
  at::Tensor loads = at::zeros({num_experts + 1}, at::kDouble);
  auto* load = loads.mutable_data_ptr<double>();
  const auto* id = ids.const_data_ptr<int64_t>();
  for (int64_t copy = 0; copy < ids.numel(); ++copy) {
    load[id[copy]] += 1;
  }
  load[num_experts] = static_cast<double>(num_real);
  all_ranks.all_reduce(loads, kStepLoads);
  return loads;
}

at::Tensor set_balance_loss(const Routing& routing, const ForwardContext& context,
                            const TokenRanges& own, const at::Tensor& loads, Ledger& ledger) {
  const at::Tensor& probabilities = routing.probabilities;
  const int64_t num_experts = probabilities.size(1);
  const auto top_k = static_cast<double>(routing.expert_ids.size(1));
  const auto tokens = loads[num_experts].item<double>();
  const double scale = tokens > 0 ? static_cast<double>(num_experts) / (top_k * tokens) : 0;
  const at::Tensor factors =
      loads.narrow(0, 0, num_experts) *
      (scale * ledger.scale(kSetScale, 1 / context.num_batch_tokens));  // [num_experts]
  const at::Tensor sums = probabilities.narrow(0, 0, context.table.num_real(own)).sum(0);
  return (sums * factors.to(sums.scalar_type())).sum();
}

at::Tensor router_z_loss(const Routing& routing, const ForwardContext& context,
                         const TokenRanges& own, Ledger& ledger) {
  const int64_t num_real = context.table.num_real(own);
  const at::Tensor log_sums = at::logsumexp(routing.logits.narrow(0, 0, num_real), {-1});
  return log_sums.square().sum() * ledger.scale(kZLossScale, 1 / context.num_batch_tokens);
}

}  // namespace switchyard
