#include "nn/scan_mixer.h"

#include <vector>

#include <ATen/ATen.h>

#include "nn/row_exchange.h"
#include "ops/causal_conv.h"

namespace switchyard {

at::Tensor widened(const at::Tensor& tensor) {
  return tensor.to(tensor.scalar_type() == at::kDouble ? at::kDouble : at::kFloat);
}

at::Tensor convolve(const at::Tensor& channels, const at::Tensor& weight,
                    const std::optional<at::Tensor>& bias, const SequenceTable& table,
                    ScanCache* cache) {
  const bool follows = cache != nullptr && cache->conv.defined();
  const auto history = follows ? std::optional(cache->conv) : std::nullopt;
  const at::Tensor mixed = causal_conv(channels, weight, bias, table, history);
  if (cache != nullptr) {
    cache->conv = conv_history(channels, weight.size(1), table, history);
  }
  return mixed;
}

std::unique_ptr<MixerCache> ScanMixer::new_cache() const {
  return std::make_unique<ScanCache>();
}

at::Tensor ScanMixer::scan_tokens(const at::Tensor& channels, const at::Tensor& steps,
                                  const SequenceTable& table, const MixerCaches* caches) const {
  if (table.num_shares > 1) {
    return scan_shared_row(channels, steps, table);
  }
  const at::Tensor used = channels_of({}, channels, 1);
  return caches == nullptr ? scan({}, used, steps, table, nullptr)
                           : scan_after_caches(used, steps, table, *caches);
}

at::Tensor ScanMixer::scan_shared_row(const at::Tensor& channels, const at::Tensor& steps,
                                      const SequenceTable& table) const {
  const int64_t ranks = context_group_.size();
  std::vector<at::Tensor> channels_for_ranks;
  std::vector<at::Tensor> steps_for_ranks;
  for (int64_t rank = 0; rank < ranks; ++rank) {
    channels_for_ranks.push_back(channels_of({rank, ranks}, channels, 1));
    steps_for_ranks.push_back(steps_of({rank, ranks}, steps));
  }
  const at::Tensor row = take_row(channels_for_ranks, table, context_group_, sites_.channels);
  const at::Tensor row_steps = take_row(steps_for_ranks, table, context_group_, sites_.steps);
  const at::Tensor out = scan({context_group_.rank(), ranks}, row, row_steps, table, nullptr);
  return return_row(out, table, context_group_, sites_.tokens);
}

// Sequence by sequence: each has a cache of its own.
at::Tensor ScanMixer::scan_after_caches(const at::Tensor& channels, const at::Tensor& steps,
                                        const SequenceTable& table,
                                        const MixerCaches& caches) const {
  std::vector<at::Tensor> scanned;
  for (int64_t i = 0; i < table.num_sequences(); ++i) {
    const int64_t start = table.starts[static_cast<size_t>(i)];
    const int64_t length = table.length(i);
    auto& cache = dynamic_cast<ScanCache&>(*caches.at(static_cast<size_t>(i)));
    scanned.push_back(scan({}, channels.narrow(0, start, length), steps.narrow(0, start, length),
                           SequenceTable::from_lengths({length}), &cache));
  }
  return at::cat(scanned);
}

}  // namespace switchyard
