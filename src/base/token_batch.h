#pragma once

#include <ATen/core/Tensor.h>

#include "base/sequence_table.h"

namespace switchyard {

// A micro-batch as the model takes it: one packed row of tokens.
struct TokenBatch {
  at::Tensor tokens;   // [tokens] int64
  at::Tensor labels;   // [tokens] int64: the token that follows; -100 where there is none
  at::Tensor weights;  // [tokens] fp32: loss weight; 0 in padding
  SequenceTable table;
  // The number of the row's first token, counted over all tokens of the run: what random numbers of
  // the row are keyed by, so that they do not depend on how batches are cut.
  int64_t first_token = 0;
};

}  // namespace switchyard
