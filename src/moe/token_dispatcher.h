#pragma once

#include <memory>
#include <vector>

#include <ATen/core/Tensor.h>

#include "config/config.h"
#include "moe/router.h"
#include "parallel/collectives.h"
#include "parallel/groups.h"

namespace switchyard {

// What a dispatcher must remember between dispatch and combine.
struct DispatchState {
  virtual ~DispatchState() = default;
};

// Token copies on the rank that holds their experts.
struct DispatchedTokens {
  at::Tensor rows;                       // [received, hidden], grouped by local expert
  at::Tensor weights;                    // [received] fp32 or fp64: each copy's routing weight
  std::vector<int64_t> rows_per_expert;  // [local_experts]
  std::shared_ptr<const DispatchState> state;
};

// Brings token copies to their experts and the results back. Both calls are collective over the
// ranks that share one copy of the experts (ep x etp): every rank must make them equally often,
// also with no tokens. Differentiable. Rows of an expert come in a fixed order, and a token's
// results are summed in a fixed one (slot by slot, but see FlexDispatcher), so nothing depends on
// the order of arrival.
class TokenDispatcher {
 public:
  virtual ~TokenDispatcher() = default;

  // tokens [tokens, hidden]; each rank its own.
  virtual DispatchedTokens dispatch(const at::Tensor& tokens, const Routing& routing) const = 0;
  // rows [received, hidden]: what the local experts made of the dispatched rows; with etp, this
  // rank's part of a sum over etp. Returns [tokens, hidden].
  virtual at::Tensor combine(const at::Tensor& rows, const DispatchedTokens& dispatched) const = 0;

  // combine() in two steps: what is computed between them goes on while the results travel
  // (parallel/collectives.h).
  virtual RowsUnderWay start_combine(const at::Tensor& rows,
                                     const DispatchedTokens& dispatched) const {
    return {combine(rows, dispatched)};
  }
  virtual at::Tensor finish_combine(const RowsUnderWay& results, const DispatchedTokens&) const {
    return finish_rows(results);
  }
};

std::unique_ptr<TokenDispatcher> make_dispatcher(const MoeConfig& config, const Groups& groups);

}  // namespace switchyard
