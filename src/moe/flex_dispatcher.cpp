#include "moe/flex_dispatcher.h"

#include <algorithm>
#include <map>
#include <utility>

#include <ATen/ATen.h>

#include "ops/permute.h"
#include "parallel/collectives.h"

namespace switchyard {
namespace {

constexpr Site kPaddingRows{"moe.dispatch.padding_rows", Purpose::kControl};

struct StepSites {
  Site counts;
  Site tokens;
  Site weights;
  Site expert_ids;
  Site sums;
};
constexpr StepSites kBetweenNodes = {{"moe.dispatch.node_counts", Purpose::kControl},
                                     {"moe.dispatch.node_tokens", Purpose::kDispatch},
                                     {"moe.dispatch.node_weights", Purpose::kDispatch},
                                     {"moe.dispatch.node_expert_ids", Purpose::kDispatch},
                                     {"moe.combine.node_sums", Purpose::kCombine}};
constexpr StepSites kInsideNode = {{"moe.dispatch.rank_counts", Purpose::kControl},
                                   {"moe.dispatch.rank_tokens", Purpose::kDispatch},
                                   {"moe.dispatch.rank_weights", Purpose::kDispatch},
                                   {"moe.dispatch.rank_expert_ids", Purpose::kDispatch},
                                   {"moe.combine.rank_sums", Purpose::kCombine}};

// What travels for each token.
struct Rows {
  at::Tensor tokens;      // [rows, hidden]
  at::Tensor weights;     // [rows, top_k] fp32 or fp64
  at::Tensor expert_ids;  // [rows, top_k] int64, -1: no copy
};

// A step that was taken with some rows.
struct Hop {
  const StepSites* sites;
  ExpertOrder order;  // of the copies, one per rank that a row went to, by rank
  std::vector<int64_t> receive_counts;

  const std::vector<int64_t>& send_counts() const { return order.rows_per_expert; }
};

struct State final : DispatchState {
  std::vector<Hop> hops;
  ExpertOrder order;  // of the copies of the rows that arrived, by local expert
};

// Each rank of the group gets as many of the values, in rank order; returns what each sent here.
std::vector<int64_t> exchange_values(const std::vector<int64_t>& values, const Group& group,
                                     const Site& site) {
  const std::vector<int64_t> ones(static_cast<size_t>(group.size()), 1);
  const at::Tensor sent = at::tensor(values, at::kLong).view({group.size(), -1});
  const at::Tensor received = group.all_to_all(sent, ones, ones, site).contiguous();
  const auto* first = received.const_data_ptr<int64_t>();
  return {first, first + received.numel()};
}

at::Tensor carry(const at::Tensor& rows, const Hop& hop, const Group& group, const Site& site) {
  return exchange_rows(permute(rows, hop.order), hop.send_counts(), hop.receive_counts, group,
                       site);
}

Rows carry(const Rows& rows, const Hop& hop, const Group& group) {
  const at::Tensor ids = rows.expert_ids.index_select(0, hop.order.token_of_row);
  return {carry(rows.tokens, hop, group, hop.sites->tokens),
          carry(rows.weights, hop, group, hop.sites->weights),
          group.all_to_all(ids, hop.send_counts(), hop.receive_counts, hop.sites->expert_ids)};
}

at::Tensor bring_back_sums(const at::Tensor& rows, const Hop& hop, const Group& group) {
  return combine(exchange_rows(rows, hop.receive_counts, hop.send_counts(), group, hop.sites->sums),
                 hop.order);
}

}  // namespace

// Whom this rank hands its rows to.
struct FlexDispatcher::Step {
  struct Target {
    int64_t rank;                  // in the group
    std::vector<bool> has_expert;  // it or the ranks that it hands rows on to; [num_experts]
  };

  const StepSites* sites;
  std::vector<Target> targets;

  // The rank of each target that has experts of the row, -1 for others. [rows, targets]
  at::Tensor ranks_of_rows(const at::Tensor& expert_ids) const;
};

at::Tensor FlexDispatcher::Step::ranks_of_rows(const at::Tensor& expert_ids) const {
  const int64_t num_targets = std::ssize(targets);
  at::Tensor ranks = at::full({expert_ids.size(0), num_targets}, -1, at::kLong);
  const at::Tensor ids = expert_ids.contiguous();
  const int64_t top_k = ids.size(1);
  const auto* id_of = ids.const_data_ptr<int64_t>();
  auto* rank_of = ranks.mutable_data_ptr<int64_t>();
  for (int64_t copy = 0; copy < ids.numel(); ++copy) {
    if (id_of[copy] < 0) {
      continue;
    }
    int64_t* of_row = rank_of + copy / top_k * num_targets;
    for (const Target& target : targets) {
      *of_row = target.has_expert[static_cast<size_t>(id_of[copy])] ? target.rank : *of_row;
      ++of_row;
    }
  }
  return ranks;
}

FlexDispatcher::FlexDispatcher(int64_t num_experts, const Groups& groups)
    : group_(groups[GroupName::kExpertExpertTensor]),
      num_local_experts_(num_experts / groups.mesh().size(Axis::kExpert)) {
  std::map<int64_t, std::vector<int64_t>> ranks_of_node;
  for (int64_t rank = 0; rank < group_.size(); ++rank) {
    const int64_t in_world = group_.members()[static_cast<size_t>(rank)];
    const int64_t coordinate = groups.mesh().coordinate(in_world, Axis::kExpert);
    first_experts_.push_back(coordinate * num_local_experts_);
    ranks_of_node[groups.nodes()[static_cast<size_t>(in_world)]].push_back(rank);
  }
  const auto target = [&](int64_t rank, const std::vector<int64_t>& holders) {
    Step::Target result{rank, std::vector<bool>(static_cast<size_t>(num_experts), false)};
    for (const int64_t holder : holders) {
      const int64_t first = first_experts_[static_cast<size_t>(holder)];
      std::fill_n(result.has_expert.begin() + first, num_local_experts_, true);
    }
    return result;
  };
  const auto own_node = groups.nodes()[static_cast<size_t>(groups.rank())];
  const std::vector<int64_t>& neighbours = ranks_of_node.at(own_node);
  const auto place = static_cast<size_t>(
      std::find(neighbours.begin(), neighbours.end(), group_.rank()) - neighbours.begin());
  if (ranks_of_node.size() > 1) {
    Step& step = steps_.emplace_back(&kBetweenNodes);
    for (const auto& [node, ranks] : ranks_of_node) {
      step.targets.push_back(target(ranks[place % ranks.size()], ranks));
    }
  }
  Step& step = steps_.emplace_back(&kInsideNode);
  for (const int64_t rank : neighbours) {
    step.targets.push_back(target(rank, {rank}));
  }
}

FlexDispatcher::~FlexDispatcher() = default;

DispatchedTokens FlexDispatcher::dispatch(const at::Tensor& tokens, const Routing& routing) const {
  auto state = std::make_shared<State>();
  Rows rows{tokens, routing.weights, routing.dispatched_ids()};
  for (const Step& step : steps_) {
    Hop hop{step.sites, expert_order(step.ranks_of_rows(rows.expert_ids), group_.size()), {}};
    hop.receive_counts = exchange_values(hop.send_counts(), group_, hop.sites->counts);
    rows = carry(rows, hop, group_);
    state->hops.push_back(std::move(hop));
  }
  state->order =
      local_expert_order(rows.expert_ids, first_experts_[static_cast<size_t>(group_.rank())],
                         num_local_experts_, local_padding(routing.padding_rows));
  return {permute(rows.tokens, state->order), permute_weights(rows.weights, state->order),
          state->order.rows_per_expert, state};
}

// The empty rows that all ranks add to each local expert: they are made here and do not travel.
std::vector<int64_t> FlexDispatcher::local_padding(const std::vector<int64_t>& padding_rows) const {
  if (padding_rows.empty()) {
    return {};
  }
  std::vector<int64_t> by_rank;
  for (const int64_t first : first_experts_) {
    const auto begin = padding_rows.begin() + first;
    by_rank.insert(by_rank.end(), begin, begin + num_local_experts_);
  }
  std::vector<int64_t> local(static_cast<size_t>(num_local_experts_), 0);
  const std::vector<int64_t> received = exchange_values(by_rank, group_, kPaddingRows);
  for (size_t i = 0; i < received.size(); ++i) {
    local[i % local.size()] += received[i];
  }
  return local;
}

at::Tensor FlexDispatcher::combine(const at::Tensor& rows,
                                   const DispatchedTokens& dispatched) const {
  const auto& state = static_cast<const State&>(*dispatched.state);
  at::Tensor sums = switchyard::combine(rows, state.order);
  for (auto hop = state.hops.rbegin(); hop != state.hops.rend(); ++hop) {
    sums = bring_back_sums(sums, *hop, group_);
  }
  return sums;
}

}  // namespace switchyard
