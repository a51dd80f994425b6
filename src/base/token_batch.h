#pragma once

#include <ATen/core/Tensor.h>

#include "base/sequence_table.h"

namespace switchyard {

// A micro-batch as the model takes it: one packed row of tokens, of which a rank of cp holds a
// share.
struct TokenBatch {
  at::Tensor tokens;   // [held tokens] int64
  at::Tensor labels;   // [held tokens] int64: the token that follows; -100 where there is none
  at::Tensor weights;  // [held tokens] fp32: loss weight; 0 in padding
  SequenceTable table;
  // The number of the whole row's first token, counted over all tokens of the run: what random
  // numbers of the row are keyed by, so that they do not depend on how batches are cut.
  int64_t first_token = 0;

  // The share `index` of `parts` of a batch that holds its whole row.
  TokenBatch share(int64_t parts, int64_t index) const;
};

}  // namespace switchyard
