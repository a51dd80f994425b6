#include "nn/attention_core.h"

#include <vector>

#include "config/recompute_modules.h"
#include "nn/recompute.h"
#include "ops/attention.h"

namespace switchyard {

AttentionCore::AttentionCore(const Config& config, const Group& context_group)
    : is_recomputed_(recomputes(config.train, RecomputeModules::kCoreAttention)),
      exchange_(make_context_attention(config.parallel.context_exchange, context_group)) {}

at::Tensor AttentionCore::forward(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                                  const SequenceTable& table,
                                  const AttentionOptions& options) const {
  const auto core = [exchange = exchange_.get(), table,
                     options](const std::vector<at::Tensor>& inputs) {
    return table.num_shares > 1 ? exchange->forward(inputs[0], inputs[1], inputs[2], table, options)
                                : attention(inputs[0], inputs[1], inputs[2], table, options).out;
  };
  if (!is_recomputed_) {
    return core({q, k, v});
  }
  if (table.num_shares == 1) {
    return recompute_with_output(core, {q, k, v});
  }
  // It communicates: all ranks must come to the second run at the same place of backward. Who asks
  // first for a dropped output differs where a rank holds no tokens, so the output is kept.
  const Segment segment = [core](const std::vector<at::Tensor>& inputs) {
    return std::vector<at::Tensor>{core(inputs)};
  };
  return recompute(segment, {q, k, v})[0];
}

}  // namespace switchyard
