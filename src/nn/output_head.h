#pragma once

#include "config/config.h"
#include "nn/embedding.h"
#include "ops/cross_entropy.h"

namespace switchyard {

struct TokenLoss {
  at::Tensor weighted_sum;  // [] sum over tokens of weight x cross-entropy, differentiable; equal
                            // on all ranks of tp
  at::Tensor per_token;     // [tokens] cross-entropy, without gradient; 0 for ignored labels
};

// Hidden states to the vocabulary, cut over tp, times multipliers.logits and bent by
// model.logit_softcap. Parameter: weight [vocab, hidden], or the
// embedding's when tied.
class OutputHead {
 public:
  // `embedding` is used when model.tie_embeddings, else a parameter is declared and it may be null.
  OutputHead(const Scope& scope, const Config& config, const Embedding* embedding);

  // Cross-entropy from hidden states, a chunk of tokens at a time: the logits of all tokens are
  // never alive. hidden [tokens, hidden] invariant or sharded by tokens; labels [tokens] int64,
  // -100 ignored; weights [tokens] fp32 or fp64. In nats. Collective over tp.
  TokenLoss loss(const Placed& hidden, const at::Tensor& labels, const at::Tensor& weights) const;

  // The logits of all tokens, [tokens, vocab] fp32 (fp64 for fp64). Collective over tp.
  at::Tensor logits(const Placed& hidden) const;

 private:
  const Group& tensor_group_;
  int64_t vocab_size_;
  ShardRange rows_;    // of the vocabulary, on this rank
  at::Tensor weight_;  // [vocab/tp, hidden]
  LogitFunction function_;
};

}  // namespace switchyard
