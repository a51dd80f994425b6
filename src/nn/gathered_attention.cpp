#include <ATen/ATen.h>

#include "nn/context_attention.h"
#include "parallel/collectives.h"

namespace switchyard {
namespace {

constexpr Site kKeysValues{"attention.context_keys_values", Purpose::kContextParallel};

class GatheredAttention : public ContextAttention {
 public:
  explicit GatheredAttention(const Group& group) : group_(group) {}

  at::Tensor forward(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                     const SequenceTable& table, const AttentionOptions& options) const override {
    const at::Tensor own = at::cat({k, v}, 1);  // [held, 2 kv_heads, head_dim]
    const at::Tensor row =
        join_zigzag(gather_rows(own, table.share_sizes(), group_, kKeysValues), table.num_shares);
    const int64_t kv_heads = k.size(1);
    std::vector<at::Tensor> parts;
    int64_t place = 0;
    std::vector<TokenRange> ranges = table.held.ranges();
    if (ranges.empty()) {
      ranges.push_back({});  // a rank without tokens takes part in the backward exchange too
    }
    for (const TokenRange& queries : ranges) {
      // No query sees a key after the last of them.
      const TokenRange keys{0, queries.end};
      const at::Tensor seen = row.narrow(0, keys.begin, keys.size());
      parts.push_back(
          attention_over(q.narrow(0, place, queries.size()), seen.narrow(1, 0, kv_heads),
                         seen.narrow(1, kv_heads, kv_heads),
                         attention_spans(table.starts, queries, keys, options.window), options)
              .out);
      place += queries.size();
    }
    return at::cat(parts);
  }

 private:
  const Group& group_;
};

}  // namespace

std::unique_ptr<ContextAttention> make_gathered_attention(const Group& group) {
  return std::make_unique<GatheredAttention>(group);
}

}  // namespace switchyard
