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
};

}  // namespace switchyard
