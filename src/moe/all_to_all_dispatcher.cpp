#include "moe/all_to_all_dispatcher.h"

#include <numeric>

#include <ATen/ATen.h>

#include "ops/permute.h"
#include "parallel/collectives.h"

namespace switchyard {
namespace {

constexpr Site kExpertCounts{"moe.dispatch.expert_counts", Purpose::kControl};
constexpr Site kSharedCounts{"moe.dispatch.shared_counts", Purpose::kControl};
constexpr Site kRows{"moe.dispatch.rows", Purpose::kDispatch};
constexpr Site kWeights{"moe.dispatch.weights", Purpose::kDispatch};
constexpr Site kSharedRows{"moe.dispatch.shared_rows", Purpose::kDispatch};
constexpr Site kSharedWeights{"moe.dispatch.shared_weights", Purpose::kDispatch};
constexpr Site kSharedSum{"moe.combine.shared_sum", Purpose::kCombine};
constexpr Site kReturn{"moe.combine.rows", Purpose::kCombine};

int64_t sum(const std::vector<int64_t>& values) {
  return std::accumulate(values.begin(), values.end(), int64_t{0});
}

struct State final : DispatchState {
  ExpertOrder order;                    // of this rank's copies, over all experts
  std::vector<int64_t> send_counts;     // rows to each rank of ep
  std::vector<int64_t> receive_counts;  // rows from each rank of ep
  std::vector<int64_t> shared_counts;   // rows of each rank of etp
  at::Tensor row_of_arrival;            // expert order -> arrival order; undefined when the same
  at::Tensor arrival_of_row;
};

// Rows arrive as blocks, one per source and local expert: block_rows[source][expert]. Fills the two
// permutations between that order and the order by expert, then source.
void order_by_expert(const std::vector<std::vector<int64_t>>& block_rows, int64_t num_local_experts,
                     int64_t num_rows, State& state) {
  std::vector<int64_t> block_start;
  int64_t next = 0;
  for (const auto& source : block_rows) {
    for (const int64_t rows : source) {
      block_start.push_back(next);
      next += rows;
    }
  }
  state.row_of_arrival = at::empty({num_rows}, at::kLong);
  state.arrival_of_row = at::empty({num_rows}, at::kLong);
  auto* from = state.row_of_arrival.mutable_data_ptr<int64_t>();
  auto* back = state.arrival_of_row.mutable_data_ptr<int64_t>();
  int64_t row = 0;
  for (int64_t expert = 0; expert < num_local_experts; ++expert) {
    for (size_t source = 0; source < block_rows.size(); ++source) {
      const auto block =
          source * static_cast<size_t>(num_local_experts) + static_cast<size_t>(expert);
      const int64_t rows = block_rows[source][static_cast<size_t>(expert)];
      for (int64_t i = 0; i < rows; ++i, ++row) {
        from[row] = block_start[block] + i;
        back[block_start[block] + i] = row;
      }
    }
  }
}

}  // namespace

AllToAllDispatcher::AllToAllDispatcher(int64_t num_experts, const Groups& groups)
    : expert_group_(groups[GroupName::kExpert]),
      expert_tensor_group_(groups[GroupName::kExpertTensor]),
      num_experts_(num_experts),
      num_local_experts_(num_experts / expert_group_.size()) {}

DispatchedTokens AllToAllDispatcher::dispatch(const at::Tensor& tokens,
                                              const Routing& routing) const {
  auto state = std::make_shared<State>();
  state->order = expert_order(routing.dispatched_ids(), num_experts_, routing.padding_rows);
  DispatchedTokens out{permute(tokens, state->order),
                       permute_weights(routing.weights, state->order), state->order.rows_per_expert,
                       state};
  if (expert_group_.size() == 1 && expert_tensor_group_.size() == 1) {
    return out;
  }

  // Copies of each expert on each rank of ep; [ep][num_experts].
  const auto counts = expert_group_.all_gather_counts(out.rows_per_expert, kExpertCounts);
  const auto experts_of = [&](const std::vector<int64_t>& all, int64_t rank) {
    const auto first = all.begin() + rank * num_local_experts_;
    return std::vector<int64_t>(first, first + num_local_experts_);
  };
  std::vector<int64_t> blocks;  // rows per source rank of ep and local expert
  for (int64_t peer = 0; peer < expert_group_.size(); ++peer) {
    const auto local = experts_of(counts[static_cast<size_t>(peer)], expert_group_.rank());
    state->send_counts.push_back(sum(experts_of(out.rows_per_expert, peer)));
    state->receive_counts.push_back(sum(local));
    blocks.insert(blocks.end(), local.begin(), local.end());
  }
  const auto arrived = exchange_rows({out.rows, out.weights}, state->send_counts,
                                     state->receive_counts, expert_group_, {kRows, kWeights});

  // All ranks of etp compute their part of every row that one of them received.
  std::vector<std::vector<int64_t>> block_rows;  // [etp x ep][local_experts]
  for (const auto& received : expert_tensor_group_.all_gather_counts(blocks, kSharedCounts)) {
    state->shared_counts.push_back(sum(received));
    for (int64_t peer = 0; peer < expert_group_.size(); ++peer) {
      block_rows.push_back(experts_of(received, peer));
    }
  }
  const auto shared = gather_rows(arrived, state->shared_counts, expert_tensor_group_,
                                  {kSharedRows, kSharedWeights});

  order_by_expert(block_rows, num_local_experts_, sum(state->shared_counts), *state);
  out.rows = reorder_rows(shared[0], state->row_of_arrival, state->arrival_of_row);
  out.weights = reorder_rows(shared[1], state->row_of_arrival, state->arrival_of_row);
  out.rows_per_expert.assign(static_cast<size_t>(num_local_experts_), 0);
  for (const auto& source : block_rows) {
    for (size_t expert = 0; expert < source.size(); ++expert) {
      out.rows_per_expert[expert] += source[expert];
    }
  }
  return out;
}

// What goes back: in the order of arrival, summed over etp.
at::Tensor AllToAllDispatcher::results_to_return(const at::Tensor& rows,
                                                 const DispatchedTokens& dispatched) const {
  const auto& state = static_cast<const State&>(*dispatched.state);
  return reduce_scatter_rows(reorder_rows(rows, state.arrival_of_row, state.row_of_arrival),
                             state.shared_counts, expert_tensor_group_, kSharedSum);
}

at::Tensor AllToAllDispatcher::combine(const at::Tensor& rows,
                                       const DispatchedTokens& dispatched) const {
  const auto& state = static_cast<const State&>(*dispatched.state);
  if (!state.row_of_arrival.defined()) {
    return switchyard::combine(rows, state.order);
  }
  return switchyard::combine(
      exchange_rows(results_to_return(rows, dispatched), state.receive_counts, state.send_counts,
                    expert_group_, kReturn),
      state.order);
}

RowsUnderWay AllToAllDispatcher::start_combine(const at::Tensor& rows,
                                               const DispatchedTokens& dispatched) const {
  const auto& state = static_cast<const State&>(*dispatched.state);
  if (!state.row_of_arrival.defined()) {
    return {rows};
  }
  return start_exchange_rows(results_to_return(rows, dispatched), state.receive_counts,
                             state.send_counts, expert_group_, kReturn);
}

at::Tensor AllToAllDispatcher::finish_combine(const RowsUnderWay& results,
                                              const DispatchedTokens& dispatched) const {
  return switchyard::combine(finish_rows(results),
                             static_cast<const State&>(*dispatched.state).order);
}

}  // namespace switchyard
