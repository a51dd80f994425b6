#pragma once

#include <memory>
#include <optional>

#include "nn/mixer.h"
#include "parallel/group.h"

namespace switchyard {

// What a mixer that scans remembers of the tokens so far, of one sequence, for generation;
// undefined before the first token.
struct ScanCache : MixerCache {
  at::Tensor conv;   // [1, conv_width - 1, channels here] inputs of the convolution
  at::Tensor state;  // [1, heads/tp, ...] of the scan
};

// New tokens up to this many go through the recurrence of a scan, more through its chunks.
constexpr int64_t kFewTokens = 16;

// In fp32, or fp64 where it is fp64: as scans take what sets time steps and decays.
at::Tensor widened(const at::Tensor& tensor);

// Causal convolution and SiLU, after the inputs that the cache holds, which then holds the last of
// these. channels [tokens, channels], weight [channels, conv_width], bias [channels] or none;
// `cache` is null or of the one sequence of the table.
at::Tensor convolve(const at::Tensor& channels, const at::Tensor& weight,
                    const std::optional<at::Tensor>& bias, const SequenceTable& table,
                    ScanCache* cache);

// One of `count` equal parts of a rank's heads, in order.
struct HeadPart {
  int64_t index = 0;
  int64_t count = 1;
};

// A mixer that convolves some channels of each token with those of the tokens before it, and then
// carries a state from token to token, head by head. Where the ranks of cp divide the row, each
// scans whole rows for one part of the heads.
class ScanMixer : public Mixer {
 public:
  std::unique_ptr<MixerCache> new_cache() const override;

 protected:
  struct Sites {  // of the exchanges over cp
    Site channels;
    Site steps;
    Site tokens;
  };
  ScanMixer(const Group& context_group, const Sites& sites)
      : context_group_(context_group), sites_(sites) {}

  // channels [held tokens, channels here], steps (what else the scan needs of a token)
  // [held tokens, numbers here] -> [held tokens, heads/tp, head_dim]. With `caches`, one per
  // sequence of the table, the tokens of each follow those in its cache. Collective over cp where
  // its ranks divide the row.
  at::Tensor scan_tokens(const at::Tensor& channels, const at::Tensor& steps,
                         const SequenceTable& table, const MixerCaches* caches) const;

 private:
  // What a part needs of a tensor over the channels here (along `dim`), or over the steps
  // [held tokens, numbers here].
  virtual at::Tensor channels_of(const HeadPart& part, const at::Tensor& all,
                                 int64_t dim) const = 0;
  virtual at::Tensor steps_of(const HeadPart& part, const at::Tensor& all) const = 0;
  // Convolution and scan of whole sequences, of the channels and steps of one part ->
  // [tokens, heads of the part, head_dim]. `cache` is null or of the one sequence of the table.
  virtual at::Tensor scan(const HeadPart& part, const at::Tensor& channels, const at::Tensor& steps,
                          const SequenceTable& table, ScanCache* cache) const = 0;

  at::Tensor scan_shared_row(const at::Tensor& channels, const at::Tensor& steps,
                             const SequenceTable& table) const;
  at::Tensor scan_after_caches(const at::Tensor& channels, const at::Tensor& steps,
                               const SequenceTable& table, const MixerCaches& caches) const;

  const Group& context_group_;
  Sites sites_;
};

}  // namespace switchyard
