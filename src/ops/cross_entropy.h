#pragma once

#include <cstdint>
#include <functional>

#include <ATen/core/Tensor.h>

#include "base/ignored_label.h"

namespace switchyard {

// The local pieces of a cross-entropy whose vocabulary may be split over ranks. All work on a chunk
// of logits [chunk, local_vocab] fp32 or fp64, contiguous; labels [chunk] int64 count over the
// whole vocabulary, of which this rank holds [vocab_offset, vocab_offset + local_vocab).

// Largest logit of each row: [chunk]; -infinity when this rank holds no part of the vocabulary. A
// NaN is passed over; it shows in the sum.
at::Tensor row_max(const at::Tensor& logits);

// In place, logits -> exp(logit - row_max). Returns [2, chunk]: the sum of each row's exponentials,
// and (label's logit - row_max) where this rank holds the label, else 0.
// token loss = log(sums[0]) - sums[1], after both were added over the ranks.
at::Tensor exponentiate_(at::Tensor& logits, const at::Tensor& row_max, const at::Tensor& labels,
                         int64_t vocab_offset);

// exponentials -> token_weights * (softmax - onehot(label)), rounded to the dtype of `gradient`
// [chunk, local_vocab], which may be the same tensor. sums [2, chunk] is exponentiate_'s, added
// over the ranks; token_weights [chunk] has the dtype of the exponentials.
void exponentials_to_gradient(const at::Tensor& exponentials, const at::Tensor& sums,
                              const at::Tensor& labels, const at::Tensor& token_weights,
                              int64_t vocab_offset, at::Tensor& gradient);

// How the parts of a split vocabulary are joined. The default is one rank that holds all of it.
struct VocabReduce {
  int64_t vocab_offset = 0;
  int64_t vocab_size = -1;               // over all ranks; -1: the rows of `weight`
  int64_t num_parts = 1;                 // ranks that hold a part, each by its shard_range
  std::function<void(at::Tensor&)> max;  // all-reduces [chunk] in place; empty: nothing to do
  std::function<void(at::Tensor&)> sum;  // all-reduces [2, chunk] in place
};

// What becomes of the products of hidden and weight before they are logits: product x multiplier,
// then c tanh(value / c) with c = softcap (Gemma 2, arXiv:2408.00118).
struct LogitFunction {
  double multiplier = 1;
  double softcap = 0;  // 0: none

  bool is_identity() const { return multiplier == 1 && softcap == 0; }
};

// Applies `function` in place. products fp32 or fp64, contiguous. Returns the slopes, of the same
// shape, when `needs_slopes`. Not differentiable.
at::Tensor apply_(at::Tensor& products, const LogitFunction& function, bool needs_slopes);

struct CrossEntropyOutput {
  at::Tensor weighted_loss_sum;  // [] fp32 or fp64: sum of token_weights * token_losses
  at::Tensor token_losses;       // [tokens] fp32 or fp64, unweighted, 0 where ignored; detached
};

// Cross-entropy of logits = function(hidden x weight^T) against labels, from hidden states: works
// over chunks of tokens, so that the logits of all tokens are never alive, and computes the
// gradients during the forward pass when they are needed (as Liger Kernel, arXiv:2410.10989);
// backward only scales them.
//
// hidden [tokens, hidden], weight [local_vocab, hidden] of one dtype; labels [tokens] int64, where
// kIgnoredLabel takes no part; token_weights [tokens] fp32, or fp64 for fp64. For bf16 the logits
// and the sum of the weight's gradient over chunks are fp32. The gradient of hidden is this rank's
// part: with a split vocabulary it must be added over the ranks.
//
// Collective when `reduce` is: its functions are called equally often on ranks with equally many
// tokens. Throws ShapeError when sizes or dtypes do not fit or a label is
// outside the vocabulary. The same bits for every number of threads.
CrossEntropyOutput linear_cross_entropy(const at::Tensor& hidden, const at::Tensor& weight,
                                        const at::Tensor& labels, const at::Tensor& token_weights,
                                        const VocabReduce& reduce = {},
                                        const LogitFunction& function = {});

}  // namespace switchyard
