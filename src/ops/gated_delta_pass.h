#pragma once

#include <cstdint>
#include <vector>

#include "ops/sequence_chunks.h"

namespace switchyard {

// The passes of gated_delta_rule() over plain arrays of T, float or double. Key heads of sequences
// are tasks of their own; each element is summed in one order, whatever the number of threads.

struct RuleSizes {
  int64_t key_heads;
  int64_t value_heads;
  int64_t key_dim;
  int64_t value_dim;
  int64_t longest_chunk;

  int64_t values_per_key() const { return value_heads / key_heads; }
  int64_t per_state() const { return key_dim * value_dim; }
  int64_t key_stride() const { return key_heads * key_dim; }  // from token to token
  int64_t value_stride() const { return value_heads * value_dim; }
};

template <class T>
struct RuleArrays {
  const T* q;          // [tokens, key_heads, key_dim], normalised and scaled
  const T* k;          // [tokens, key_heads, key_dim], normalised
  const T* v;          // [tokens, value_heads, value_dim]
  const T* log_decay;  // [tokens, value_heads]
  const T* beta;       // [tokens, value_heads]
  const T* state;      // [num_sequences, value_heads, key_dim, value_dim]; null: zeros
};

template <class T>
struct RuleGradArrays {
  T* q;          // [tokens, key_heads, key_dim], of the normalised queries
  T* k;          // as q
  T* v;          // [tokens, value_heads, value_dim]
  T* log_decay;  // [tokens, value_heads]
  T* beta;       // [tokens, value_heads]
};

// states [chunks, value_heads, key_dim, value_dim] becomes the states before each chunk; last
// [num_sequences, ...] holds the first states and becomes the last ones.
template <class T>
void rule_forward(const RuleArrays<T>& in, const RuleSizes& sizes,
                  const std::vector<SequenceChunk>& chunks, T* states, T* last, T* out);

// grad_state [num_sequences, ...]: of the last states, becomes that of the first ones.
template <class T>
void rule_backward(const RuleArrays<T>& in, const RuleSizes& sizes,
                   const std::vector<SequenceChunk>& chunks, const T* states, const T* grad_out,
                   T* grad_state, const RuleGradArrays<T>& to);

// Token by token for one sequence. states [value_heads, key_dim, value_dim] is changed in place;
// out [num_tokens, value_heads, value_dim].
template <class T>
void rule_steps(const RuleArrays<T>& in, const RuleSizes& sizes, int64_t num_tokens, T* states,
                T* out);

}  // namespace switchyard
