#include <algorithm>

#include <ATen/ATen.h>

#include "base/error.h"
#include "nn/context_attention.h"
#include "nn/row_exchange.h"

namespace switchyard {
namespace {

constexpr Site kHeads{"attention.context_heads", Purpose::kContextParallel};
constexpr Site kTokens{"attention.context_tokens", Purpose::kContextParallel};

class HeadExchangeAttention : public ContextAttention {
 public:
  explicit HeadExchangeAttention(const Group& group) : group_(group) {}

  at::Tensor forward(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                     const SequenceTable& table, const AttentionOptions& options) const override {
    const int64_t ranks = group_.size();
    const int64_t heads = q.size(1) / ranks;                           // of a rank
    const int64_t kv_heads = std::max<int64_t>(1, k.size(1) / ranks);  // of a rank
    check<ShapeError>(q.size(1) % ranks == 0 && (k.size(1) % ranks == 0 || ranks % k.size(1) == 0),
                      "attention: {} heads and {} kv_heads cannot be divided among {} ranks of cp",
                      q.size(1), k.size(1), ranks);
    std::vector<at::Tensor> for_ranks;  // [held, heads + 2 kv_heads, head_dim] each
    for (int64_t rank = 0; rank < ranks; ++rank) {
      const int64_t first_kv_head = rank * k.size(1) / ranks;
      for_ranks.push_back(
          at::cat({q.narrow(1, rank * heads, heads), k.narrow(1, first_kv_head, kv_heads),
                   v.narrow(1, first_kv_head, kv_heads)},
                  1));
    }
    const at::Tensor row = take_row(for_ranks, table, group_, kHeads);
    AttentionOptions of_heads = options;
    if (options.sinks.defined()) {
      of_heads.sinks = options.sinks.narrow(0, group_.rank() * heads, heads);
    }
    const at::Tensor out = attention(row.narrow(1, 0, heads), row.narrow(1, heads, kv_heads),
                                     row.narrow(1, heads + kv_heads, kv_heads), table, of_heads)
                               .out;  // [row tokens, heads, head_dim]
    return return_row(out, table, group_, kTokens);
  }

 private:
  const Group& group_;
};

}  // namespace

std::unique_ptr<ContextAttention> make_head_exchange_attention(const Group& group) {
  return std::make_unique<HeadExchangeAttention>(group);
}

}  // namespace switchyard
