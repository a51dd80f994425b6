#pragma once

#include <cstdint>
#include <vector>

#include <ATen/core/Tensor.h>

#include "base/token_ranges.h"

namespace switchyard {

// A batch is a list of sequences packed into one row of tokens, never a tensor plus an optional
// mask. Every operator that moves along time (attention, shift, scan, context-parallel split) takes
// this table, so that packed equals unpacked.
//
// Sequence i holds tokens starts[i] to starts[i + 1]. Tokens from starts.back() on are padding:
// they belong to no sequence, carry no loss weight, and no statistic counts them.
//
// The ranks of cp divide the row among themselves, wherever sequences begin. The table of each
// describes the whole row, and says which tokens this rank holds.
struct SequenceTable {
  std::vector<int64_t> starts;  // [num_sequences + 1], rising, starts[0] = 0
  int64_t num_tokens = 0;       // of the whole row, padding included
  int64_t num_shares = 1;       // ranks that divide the row
  TokenRanges held;             // this rank's tokens; all of them when nobody divides the row
  // [held tokens] int64, counted from the start of each sequence; 0 in padding
  at::Tensor positions;

  int64_t num_sequences() const { return static_cast<int64_t>(starts.size()) - 1; }
  int64_t num_real_tokens() const { return starts.back(); }  // of the whole row
  // How many of `tokens` are not padding; they come first.
  int64_t num_real(const TokenRanges& tokens) const { return tokens.count_before(starts.back()); }
  int64_t length(int64_t sequence) const {
    return starts[static_cast<size_t>(sequence) + 1] - starts[static_cast<size_t>(sequence)];
  }

  // Sequences of these lengths, one after the other, then padding up to `num_tokens` (-1: none).
  // Throws ShapeError when a length is not positive or the lengths exceed `num_tokens`.
  static SequenceTable from_lengths(const std::vector<int64_t>& lengths, int64_t num_tokens = -1);

  // The same row, of which this rank holds the zigzag share `index` of `parts`.
  SequenceTable share(int64_t parts, int64_t index) const;

  // How many tokens each share has. [num_shares]
  std::vector<int64_t> share_sizes() const;

  // For each token of the whole row the sequence it belongs to; -1 in padding. [num_tokens] int64
  at::Tensor sequence_ids() const;
};

}  // namespace switchyard
