#pragma once

#include <cstdint>
#include <vector>

#include "ops/sequence_chunks.h"

namespace switchyard {

// The passes of chunked_scan() over plain arrays of T, float or double. Chunks and groups of heads
// are tasks of their own; each element is summed in one order, whatever the number of threads.

struct ScanSizes {
  int64_t tokens;
  int64_t heads;
  int64_t groups;
  int64_t head_dim;
  int64_t state_size;
  int64_t longest_chunk;

  int64_t heads_per_group() const { return heads / groups; }
  int64_t per_state() const { return head_dim * state_size; }
};

template <class T>
struct ScanArrays {
  const T* x;
  int64_t x_stride;  // from token to token
  const T* dt;       // [tokens, heads]
  const T* a;        // [heads]
  const T* b;
  int64_t b_stride;
  const T* c;
  int64_t c_stride;
  const T* d;  // [heads]
};

template <class T>
struct ScanGradArrays {
  T* x;   // [tokens, heads, head_dim]
  T* dt;  // [tokens, heads]
  T* a;   // [chunks, heads]: of each chunk
  T* b;   // [tokens, groups, state_size]
  T* c;   // [tokens, groups, state_size]
  T* d;   // [chunks, heads]: of each chunk
};

template <class T>
struct ScanProblem {
  ScanArrays<T> in;
  ScanSizes sizes;
  const std::vector<SequenceChunk>& chunks;
  bool has_first_state;  // else sequences start from zeros
};

// states [chunks, heads, head_dim, state_size] becomes the states before each chunk; last
// [num_sequences, heads, head_dim, state_size] holds the first states and becomes the last ones.
template <class T>
void scan_forward(const ScanProblem<T>& problem, T* states, T* last, T* out);

template <class T>
struct ScanOutputGrads {
  const T* states;      // those before each chunk, from scan_forward()
  const T* grad_out;    // [tokens, heads, head_dim]
  bool has_state_grad;  // whether anything follows from the last states
};

// grad_states [chunks, heads, head_dim, state_size]: room for the gradients of the states after
// each chunk; grad_state [num_sequences, heads, head_dim, state_size]: those of the last states,
// which become those of the first ones.
template <class T>
void scan_backward(const ScanProblem<T>& problem, const ScanOutputGrads<T>& outputs, T* grad_states,
                   T* grad_state, const ScanGradArrays<T>& to);

// Token by token for one sequence. states [heads, head_dim, state_size] is changed in place; out
// [tokens, heads, head_dim].
template <class T>
void scan_steps(const ScanArrays<T>& in, const ScanSizes& sizes, T* states, T* out);

}  // namespace switchyard
