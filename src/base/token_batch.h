#pragma once

#include <vector>

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

  // What multi-token prediction sees besides. Entry d - 1 holds of each token what token, label and
  // weight the d-th token behind it has in the same sequence; past its end the token is 0, and
  // nothing is foretold: the label is -100 and the weight 0.
  struct Further {
    at::Tensor tokens;
    at::Tensor labels;
    at::Tensor weights;
  };
  std::vector<Further> further = {};

  // Fills `further` for 1 to `depth` tokens. Of a batch that holds its whole row.
  void look_further(int64_t depth);

  // The share `index` of `parts` of a batch that holds its whole row.
  TokenBatch share(int64_t parts, int64_t index) const;
};

}  // namespace switchyard
