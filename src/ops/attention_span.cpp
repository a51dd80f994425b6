#include "ops/attention_span.h"

#include <algorithm>

namespace switchyard {
namespace {

TokenRange overlap(const TokenRange& a, const TokenRange& b) {
  const int64_t begin = std::max(a.begin, b.begin);
  return {begin, std::max(begin, std::min(a.end, b.end))};
}

}  // namespace

std::vector<AttentionSpan> attention_spans(const std::vector<int64_t>& starts,
                                           const TokenRange& queries, const TokenRange& keys,
                                           int64_t window) {
  std::vector<AttentionSpan> spans;
  for (size_t i = 0; i + 1 < starts.size(); ++i) {
    const TokenRange sequence{starts[i], starts[i + 1]};
    TokenRange seeing = overlap(queries, sequence);
    TokenRange seen = overlap(keys, sequence);
    // Without the queries before the first key and, with a window, those that left the last behind.
    seeing.begin = std::max(seeing.begin, seen.begin);
    seen.end = std::min(seen.end, seeing.end);
    if (window > 0) {
      seen.begin = std::max(seen.begin, seeing.begin + 1 - window);
      seeing.end = std::min(seeing.end, seen.end - 1 + window);
    }
    if (seeing.size() > 0 && seen.size() > 0) {
      spans.push_back({.first_query = seeing.begin - queries.begin,
                       .num_queries = seeing.size(),
                       .first_key = seen.begin - keys.begin,
                       .num_keys = seen.size(),
                       .seen_by_first = seeing.begin + 1 - seen.begin});
    }
  }
  return spans;
}

}  // namespace switchyard
