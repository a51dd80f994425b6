#include "base/sequence_table.h"

#include <numeric>

#include "base/error.h"

namespace switchyard {

SequenceTable SequenceTable::from_lengths(const std::vector<int64_t>& lengths, int64_t num_tokens) {
  SequenceTable table;
  table.starts.push_back(0);
  for (const int64_t length : lengths) {
    check<ShapeError>(length > 0, "a sequence must have at least one token, got {}", length);
    table.starts.push_back(table.starts.back() + length);
  }
  table.num_tokens = num_tokens < 0 ? table.starts.back() : num_tokens;
  check<ShapeError>(table.starts.back() <= table.num_tokens,
                    "sequences of {} tokens in all do not fit a row of {}", table.starts.back(),
                    table.num_tokens);
  table.held = {0, table.num_tokens};
  table.positions = at::zeros({table.num_tokens}, at::kLong);
  auto* positions = table.positions.mutable_data_ptr<int64_t>();
  for (int64_t i = 0; i < table.num_sequences(); ++i) {
    const int64_t start = table.starts[static_cast<size_t>(i)];
    std::iota(positions + start, positions + start + table.length(i), 0);
  }
  return table;
}

SequenceTable SequenceTable::share(int64_t parts, int64_t index) const {
  SequenceTable table = *this;
  table.num_shares = parts;
  table.held = TokenRanges::zigzag(num_tokens, parts, index);
  table.positions = table.held.select(positions);
  return table;
}

std::vector<int64_t> SequenceTable::share_sizes() const {
  std::vector<int64_t> sizes;
  for (int64_t index = 0; index < num_shares; ++index) {
    sizes.push_back(TokenRanges::zigzag(num_tokens, num_shares, index).size());
  }
  return sizes;
}

at::Tensor SequenceTable::sequence_ids() const {
  at::Tensor ids = at::full({num_tokens}, -1, at::kLong);
  auto* data = ids.mutable_data_ptr<int64_t>();
  for (int64_t i = 0; i < num_sequences(); ++i) {
    std::fill_n(data + starts[static_cast<size_t>(i)], length(i), i);
  }
  return ids;
}

}  // namespace switchyard
