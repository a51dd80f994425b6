#pragma once

#include <ATen/core/Tensor.h>

#include "base/sequence_table.h"
#include "parallel/groups.h"

namespace switchyard {

// The two transfers of what ranks of a row tell each other: within tp, then over cp.
struct RowSites {
  Site tensor;
  Site context;
};

// The ranks that route the tokens of one row: cp divides the row, and tp each share of it. A table
// that is not divided (SequenceTable::num_shares 1) is the same on all ranks of cp, which then have
// nothing to tell each other.
struct RowRanks {
  explicit RowRanks(const Groups& groups)
      : tensor(groups.tensor()), context(groups[GroupName::kContext]) {}

  // The tokens that this rank routes.
  TokenRanges own_tokens(const SequenceTable& table) const;

  // What each rank has of its own tokens, as one row. [own tokens, ...] -> [row tokens, ...], no
  // gradient. Collective over tp and cp.
  at::Tensor gather(const at::Tensor& own, const SequenceTable& table, const RowSites& sites) const;

  // Adds up what each rank has, in place. Collective over tp and cp.
  void all_reduce(const at::Tensor& values, const SequenceTable& table,
                  const RowSites& sites) const;

  const Group& tensor;
  const Group& context;
};

}  // namespace switchyard
