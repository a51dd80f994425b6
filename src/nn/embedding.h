#pragma once

#include "config/config.h"
#include "nn/parameters.h"
#include "parallel/collectives.h"

namespace switchyard {

// Token embedding with the vocabulary cut over tp: each rank looks up its own tokens, the others
// add zero. What is looked up is multiplied by multipliers.embedding. Parameter: weight [vocab,
// hidden].
class Embedding {
 public:
  // Where the first and the last of several pipeline ranks use one weight, each makes it, and
  // `copy_index` of `num_copies` says which this is.
  Embedding(const Scope& scope, const Config& config, int64_t num_copies = 1,
            int64_t copy_index = 0);

  // ids [tokens] int64, the same on all ranks of tp -> [tokens, hidden], placed as asked:
  // invariant, or sharded by tokens. Throws ShapeError when an id is outside the vocabulary.
  // Collective over tp.
  Placed forward(const at::Tensor& ids, const Placement& output) const;

  // The rows that a rank of tp holds of a vocabulary; parts differ by one where tp does not divide
  // it.
  static ShardRange rows_here(const Group& tensor_group, int64_t vocab_size);

  const at::Tensor& weight() const { return weight_; }  // [vocab/tp, hidden]
  const Group& tensor_group() const { return tensor_group_; }

 private:
  at::Tensor multiplied(const at::Tensor& rows) const;

  const Group& tensor_group_;
  int64_t vocab_size_;
  ShardRange rows_;
  double multiplier_;
  at::Tensor weight_;
};

}  // namespace switchyard
