#pragma once

#include <cstdint>
#include <utility>

#include <ATen/core/Tensor.h>

#include "base/sequence_table.h"
#include "nn/mixer.h"
#include "ops/attention.h"

namespace switchyard {

// Keys and values of the tokens so far, of one sequence and one layer, for generation.
struct KeyValueCache : MixerCache {
  at::Tensor keys;     // [capacity, kv_heads/tp, head_dim]; undefined before the first token
  at::Tensor values;   // the same, with a width of its own
  int64_t length = 0;  // tokens held

  // Appends, growing the capacity as needed, and returns all keys and values so far.
  std::pair<at::Tensor, at::Tensor> append(const at::Tensor& new_keys,
                                           const at::Tensor& new_values);
};

// Attention of new tokens, which the KeyValueCaches take in, to all that these then hold. Sequence
// by sequence: each has a cache of its own length. Shapes as in attention(); with v undefined the
// keys are the values too.
at::Tensor attend_after(const MixerCaches& caches, const at::Tensor& q, const at::Tensor& k,
                        const at::Tensor& v, const SequenceTable& table,
                        const AttentionOptions& options);

}  // namespace switchyard
