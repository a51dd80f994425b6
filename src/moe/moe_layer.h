#pragma once

#include <memory>
#include <optional>

#include "config/config.h"
#include "moe/balance.h"
#include "moe/capacity.h"
#include "moe/experts.h"
#include "moe/router.h"
#include "moe/token_dispatcher.h"
#include "nn/forward_context.h"
#include "nn/mlp.h"

namespace switchyard {

// What a layer counts in one forward pass, on this rank's tokens; no gradients.
struct MoeStatistics {
  at::Tensor tokens_per_expert;  // [num_experts] int64, real tokens, before dropping
  // [] this rank's part of each term, before its coefficient; undefined when off
  at::Tensor balance_loss;
  at::Tensor step_balance_loss;
  at::Tensor global_balance_loss;
  at::Tensor z_loss;
  at::Tensor dropped_copies;  // [] int64, of real tokens; undefined without capacity
};

struct MoeOutput {
  Placed hidden;         // [tokens, hidden], placed as the input
  at::Tensor objective;  // [] auxiliary terms with their coefficients: this rank's part of the sum
                         // over ranks; undefined when there are none
  MoeStatistics statistics;
};

// Decisions that outlive one pass: filled by the first forward, reused by a second (recompute), or
// set beforehand (replay of expert ids).
struct RoutingMemo {
  at::Tensor expert_ids;           // [tokens, top_k] int64 or undefined
  std::optional<KeptCopies> kept;  // with capacity
  at::Tensor step_loads;           // [num_experts + 1] of count_step_loads(), or undefined
  at::Tensor loads_so_far;         // the same, summed over accumulation steps up to this one
  // What loads_so_far starts from: shared by the memos of one layer in all accumulation steps of an
  // optimizer step.
  std::shared_ptr<at::Tensor> loads = std::make_shared<at::Tensor>();
};

// Replaces a dense MLP by num_experts smaller ones, of which each token uses top_k (Shazeer et al.
// 2017, arXiv:1701.06538). Five stages that can each be called alone: route, dispatch, experts,
// combine, and the shared expert beside them, which every token uses (DeepSeekMoE,
// arXiv:2401.06066), as it is or times sigmoid(x w) (Qwen1.5-MoE). With moe.latent_size routed
// experts work in a narrower space, to which tokens are projected before dispatch and from which
// after combine (Nemotron-3, transformers' NemotronHMoE). Parameters: router.*, experts.*,
// shared_expert.*, shared_expert_gate.weight [1, hidden], latent_down.weight [latent, hidden] and
// latent_up.weight [hidden, latent].
//
// forward() is collective over tp and cp, and over ep x etp: every rank calls it equally often.
class MoeLayer {
 public:
  // `moe`: the settings of this layer.
  MoeLayer(const Scope& scope, const Config& config, const MoeConfig& moe);

  // hidden [tokens, hidden] invariant over tp, or sharded by tokens (sequence parallel).
  MoeOutput forward(const Placed& hidden, const ForwardContext& context, RoutingMemo& memo) const;

  // The stages. `tokens` are this rank's own: [tokens/tp, hidden].
  Routing route(const at::Tensor& tokens, const ForwardContext& context, RoutingMemo& memo) const;
  DispatchedTokens dispatch(const at::Tensor& tokens, const Routing& routing) const;
  at::Tensor experts(const DispatchedTokens& dispatched) const;  // [received, hidden or latent]
  at::Tensor combine(const at::Tensor& rows, const DispatchedTokens& dispatched) const;
  Placed shared_expert(const Placed& hidden) const;  // only with has_shared_expert()

  bool has_shared_expert() const { return shared_expert_ != nullptr; }
  Router& router() { return *router_; }
  ExpertWork take_expert_work() { return experts_->take_work(); }

 private:
  at::Tensor from_latent(const at::Tensor& combined) const;
  void add_auxiliary_terms(const Routing& routing, const ForwardContext& context, RoutingMemo& memo,
                           MoeOutput& output) const;
  void add_set_terms(const Routing& routing, const ForwardContext& context, RoutingMemo& memo,
                     MoeOutput& output) const;

  MoeConfig config_;
  RoutingConfig routing_;
  const Parameters& parameters_;
  bool offloads_experts_;
  bool offloads_shared_expert_;
  bool recomputes_experts_;
  bool recomputes_shared_expert_;
  const Group& tensor_group_;
  RowRanks row_ranks_;
  const Group& all_ranks_;  // dp x cp x tp
  std::unique_ptr<Router> router_;
  std::unique_ptr<TokenDispatcher> dispatcher_;
  std::unique_ptr<GroupedExperts> experts_;
  std::unique_ptr<Mlp> shared_expert_;
  at::Tensor shared_expert_gate_;  // [1, hidden]; undefined without
  at::Tensor latent_down_;         // [latent, hidden]; undefined without, as the next
  at::Tensor latent_up_;           // [hidden, latent]
};

}  // namespace switchyard
