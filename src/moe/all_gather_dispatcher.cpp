#include "moe/all_gather_dispatcher.h"

#include <ATen/ATen.h>

#include "ops/permute.h"
#include "parallel/collectives.h"

namespace switchyard {
namespace {

constexpr Site kTokenCounts{"moe.dispatch.token_counts", Purpose::kControl};
constexpr Site kTokens{"moe.dispatch.tokens", Purpose::kDispatch};
constexpr Site kWeights{"moe.dispatch.weights", Purpose::kDispatch};
constexpr Site kExpertIds{"moe.dispatch.expert_ids", Purpose::kDispatch};
constexpr Site kPaddingRows{"moe.dispatch.padding_rows", Purpose::kControl};
constexpr Site kCombine{"moe.combine.tokens", Purpose::kCombine};

struct State final : DispatchState {
  std::vector<int64_t> token_counts;  // per rank of the group
  ExpertOrder order;                  // of all ranks' copies that chose a local expert
};

}  // namespace

AllGatherDispatcher::AllGatherDispatcher(int64_t num_experts, const Groups& groups)
    : group_(groups[GroupName::kExpertExpertTensor]),
      num_local_experts_(num_experts / groups.mesh().size(Axis::kExpert)),
      first_expert_(num_local_experts_ * groups.mesh().coordinate(groups.rank(), Axis::kExpert)) {}

DispatchedTokens AllGatherDispatcher::dispatch(const at::Tensor& tokens,
                                               const Routing& routing) const {
  auto state = std::make_shared<State>();
  for (const auto& count : group_.all_gather_counts({tokens.size(0)}, kTokenCounts)) {
    state->token_counts.push_back(count[0]);
  }
  const auto all =
      gather_rows({tokens, routing.weights}, state->token_counts, group_, {kTokens, kWeights});
  const at::Tensor all_ids =
      group_.all_gather_rows(routing.dispatched_ids(), state->token_counts, kExpertIds);
  state->order = local_expert_order(all_ids, first_expert_, num_local_experts_,
                                    local_padding(routing.padding_rows));
  return {permute(all[0], state->order), permute_weights(all[1], state->order),
          state->order.rows_per_expert, state};
}

// The empty rows that all ranks add to each local expert.
std::vector<int64_t> AllGatherDispatcher::local_padding(
    const std::vector<int64_t>& padding_rows) const {
  if (padding_rows.empty()) {
    return {};
  }
  std::vector<int64_t> local(static_cast<size_t>(num_local_experts_), 0);
  for (const auto& of_rank : group_.all_gather_counts(padding_rows, kPaddingRows)) {
    for (size_t expert = 0; expert < local.size(); ++expert) {
      local[expert] += of_rank[static_cast<size_t>(first_expert_) + expert];
    }
  }
  return local;
}

at::Tensor AllGatherDispatcher::combine(const at::Tensor& rows,
                                        const DispatchedTokens& dispatched) const {
  const auto& state = static_cast<const State&>(*dispatched.state);
  const at::Tensor all_tokens = switchyard::combine(rows, state.order);
  return reduce_scatter_rows(all_tokens, state.token_counts, group_, kCombine);
}

RowsUnderWay AllGatherDispatcher::start_combine(const at::Tensor& rows,
                                                const DispatchedTokens& dispatched) const {
  const auto& state = static_cast<const State&>(*dispatched.state);
  return start_reduce_scatter_rows(switchyard::combine(rows, state.order), state.token_counts,
                                   group_, kCombine);
}

}  // namespace switchyard
