#pragma once

#include <memory>
#include <vector>

#include "nn/forward_context.h"
#include "nn/parameters.h"

namespace switchyard {

// What one mixer keeps of one sequence while the model generates.
class MixerCache {
 public:
  virtual ~MixerCache() = default;
};

// Of one mixer, one per sequence of a table.
using MixerCaches = std::vector<MixerCache*>;

// What moves values along time in a decoder layer: attention, a state-space scan.
class Mixer {
 public:
  virtual ~Mixer() = default;

  // hidden [held tokens, hidden] -> the same, placed as the input. With `caches`, made by
  // new_cache(), the tokens of each sequence follow those that its cache has met, and are added to
  // it (no gradient); null without. Collective over tp, and over cp where its ranks divide the row
  // of the table.
  virtual Placed forward(const Placed& hidden, const ForwardContext& context,
                         const MixerCaches* caches) const = 0;

  // Of a sequence of which no token is known.
  virtual std::unique_ptr<MixerCache> new_cache() const = 0;
};

}  // namespace switchyard
