#include "base/token_batch.h"

#include <algorithm>

#include <ATen/ATen.h>

#include "base/ignored_label.h"

namespace switchyard {
namespace {

// Each sequence moved `distance` tokens towards its start, `last` in the places that are left.
at::Tensor moved_up(const at::Tensor& values, const SequenceTable& table, int64_t distance,
                    int64_t last) {
  at::Tensor moved = at::full_like(values, last);
  for (int64_t i = 0; i < table.num_sequences(); ++i) {
    const int64_t start = table.starts[static_cast<size_t>(i)];
    const int64_t count = std::max<int64_t>(0, table.length(i) - distance);
    moved.narrow(0, start, count).copy_(values.narrow(0, start + table.length(i) - count, count));
  }
  return moved;
}

}  // namespace

void TokenBatch::look_further(int64_t depth) {
  further.clear();
  for (int64_t distance = 1; distance <= depth; ++distance) {
    further.push_back({moved_up(tokens, table, distance, 0),
                       moved_up(labels, table, distance, kIgnoredLabel),
                       moved_up(weights, table, distance, 0)});
  }
}

TokenBatch TokenBatch::share(int64_t parts, int64_t index) const {
  TokenBatch part;
  part.table = table.share(parts, index);
  const auto held = [&](const at::Tensor& values) { return part.table.held.select(values); };
  part.tokens = held(tokens);
  part.labels = held(labels);
  part.weights = held(weights);
  part.first_token = first_token;
  for (const Further& one : further) {
    part.further.push_back({held(one.tokens), held(one.labels), held(one.weights)});
  }
  return part;
}

}  // namespace switchyard
