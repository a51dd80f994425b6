#pragma once

#include <memory>

#include <ATen/core/Tensor.h>

#include "base/sequence_table.h"
#include "config/config.h"
#include "ops/attention.h"
#include "parallel/group.h"

namespace switchyard {

// Attention over rows that the ranks of cp divide in zigzag: a token sees tokens of other ranks.
// One file per way of exchange; all give what one rank gives, but for rounding.
class ContextAttention {
 public:
  virtual ~ContextAttention() = default;

  // As attention() of the whole row, for the tokens that this rank holds: q
  // [held tokens, heads, head_dim], k and v [held tokens, kv_heads, head_dim] ->
  // [held tokens, heads, head_dim]. Differentiable. Collective over cp, in its backward too.
  virtual at::Tensor forward(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                             const SequenceTable& table, const AttentionOptions& options) const = 0;
};

// `group` (cp) must outlive what forward() returns.
std::unique_ptr<ContextAttention> make_context_attention(ContextExchange exchange,
                                                         const Group& group);

// Every rank gathers all keys and values. The gradients are summed over ranks and cut.
std::unique_ptr<ContextAttention> make_gathered_attention(const Group& group);

// Keys and values pass around the ranks while each attends to what it has; the parts are joined by
// their log-sum-exp (Ring Attention, arXiv:2310.01889; zigzag as in arXiv:2311.09431). Backward
// they pass around again, with the sums of their gradients behind them. A rank holds the keys and
// values of two ranks at a time.
std::unique_ptr<ContextAttention> make_ring_attention(const Group& group);

// Every rank takes all tokens of some heads in place of some tokens of all heads (Ulysses,
// arXiv:2309.14509): one exchange before attention, one after. A key/value head goes to every rank
// that has one of its query heads.
std::unique_ptr<ContextAttention> make_head_exchange_attention(const Group& group);

}  // namespace switchyard
