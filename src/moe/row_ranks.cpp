#include "moe/row_ranks.h"

namespace switchyard {

TokenRanges RowRanks::own_tokens(const SequenceTable& table) const {
  const ShardRange share = shard_range(table.held.size(), tensor.size(), tensor.rank());
  return table.held.slice(share.begin, share.end);
}

at::Tensor RowRanks::gather(const at::Tensor& own, const SequenceTable& table,
                            const RowSites& sites) const {
  const at::Tensor held =
      tensor.all_gather(own.detach().contiguous(), 0, table.held.size(), sites.tensor);
  if (table.num_shares == 1) {
    return held;
  }
  return join_zigzag(context.all_gather_rows(held, table.share_sizes(), sites.context),
                     table.num_shares);
}

void RowRanks::all_reduce(const at::Tensor& values, const SequenceTable& table,
                          const RowSites& sites) const {
  tensor.all_reduce(values, sites.tensor);
  if (table.num_shares > 1) {
    context.all_reduce(values, sites.context);
  }
}

}  // namespace switchyard
