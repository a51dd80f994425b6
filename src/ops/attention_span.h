#pragma once

#include <cstdint>
#include <vector>

#include "base/token_ranges.h"

namespace switchyard {

// Queries and the keys they may see: query i sees the first `seen_by_first + i` keys, as far as
// there are so many, or the last `window` of these.
struct AttentionSpan {
  int64_t first_query = 0;  // row of q
  int64_t num_queries = 0;
  int64_t first_key = 0;  // row of k and v
  int64_t num_keys = 0;
  int64_t seen_by_first = 1;
};

// What the tokens `queries` of a row see of the tokens `keys` of it, one span for each sequence
// (SequenceTable::starts) in which there is something: every query of a span sees a key. Row 0 of q
// is queries.begin, row 0 of k and v keys.begin. `window`: as in AttentionOptions.
std::vector<AttentionSpan> attention_spans(const std::vector<int64_t>& starts,
                                           const TokenRange& queries, const TokenRange& keys,
                                           int64_t window);

}  // namespace switchyard
