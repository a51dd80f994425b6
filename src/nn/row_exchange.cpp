#include "nn/row_exchange.h"

#include <ATen/ATen.h>

#include "parallel/collectives.h"

namespace switchyard {
namespace {

// Rows of every rank, where all have as many as this one.
std::vector<int64_t> held_by_each(const SequenceTable& table, const Group& group) {
  return std::vector<int64_t>(static_cast<size_t>(group.size()), table.held.size());
}

}  // namespace

at::Tensor take_row(const std::vector<at::Tensor>& for_ranks, const SequenceTable& table,
                    const Group& group, const Site& site) {
  const at::Tensor shares = exchange_rows(at::cat(for_ranks), held_by_each(table, group),
                                          table.share_sizes(), group, site);
  return join_zigzag(shares, group.size());
}

at::Tensor return_row(const at::Tensor& row, const SequenceTable& table, const Group& group,
                      const Site& site) {
  const int64_t ranks = group.size();
  std::vector<at::Tensor> of_ranks;
  for (int64_t rank = 0; rank < ranks; ++rank) {
    of_ranks.push_back(TokenRanges::zigzag(table.num_tokens, ranks, rank).select(row));
  }
  const at::Tensor received = exchange_rows(at::cat(of_ranks), table.share_sizes(),
                                            held_by_each(table, group), group, site);
  // [ranks x held, columns, ...] -> [held, ranks x columns, ...]
  return received.unflatten(0, {ranks, table.held.size()}).transpose(0, 1).flatten(1, 2);
}

}  // namespace switchyard
