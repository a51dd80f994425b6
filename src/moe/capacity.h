#pragma once

#include <vector>

#include "config/config.h"
#include "moe/router.h"
#include "moe/row_ranks.h"
#include "nn/forward_context.h"

namespace switchyard {

// Copies that the most an expert takes of one sequence of `length` tokens (GShard,
// arXiv:2006.16668): ceil(length x top_k / num_experts x factor).
int64_t expert_capacity(int64_t length, int64_t top_k, int64_t num_experts, double factor);

// What capacity leaves of a routing.
struct KeptCopies {
  at::Tensor
      expert_ids;  // [tokens, top_k] int64, of this rank's tokens; -1 for a copy that was dropped
  // Empty rows that this rank adds for each expert, [num_experts]; empty without padding.
  std::vector<int64_t> padding_rows;
  int64_t num_dropped = 0;  // of this rank's real tokens
};

// In each sequence an expert keeps at most its capacity of copies: those of the largest weight,
// compared in fp32, ties to the first token, or the first ones. Padding tokens keep none. The
// weights of the others stay as they are. Counted per sequence over all ranks of its row, so that
// the result is the same in every layout. With routing.capacity_padding, the rank that has a
// sequence's first token fills each expert with empty rows up to the capacity. `own`: the tokens of
// the row that this rank routes. Collective over tp and cp.
KeptCopies keep_capacity(const Routing& routing, const RoutingConfig& config,
                         const SequenceTable& table, const TokenRanges& own, const RowRanks& ranks);

}  // namespace switchyard
