#include "data/tokenizers/piece_cache.h"

#include <algorithm>
#include <atomic>

namespace switchyard {

PieceCache& PieceCache::of_this_thread(uint64_t owner) {
  thread_local PieceCache cache;
  if (cache.owner_ != owner) {
    cache.entries_.assign(kNumEntries, Entry());
    cache.owner_ = owner;
  }
  return cache;
}

uint64_t PieceCache::new_owner() {
  static std::atomic<uint64_t> last{0};
  return ++last;
}

void PieceCache::put(std::string_view text, uint64_t hash, std::span<const int32_t> ids) {
  if (text.size() > kMaxTextSize || ids.size() > kMaxIds) {
    return;
  }
  Entry& entry = entries_[hash & kMask];
  entry.hash = hash;
  entry.text_size = static_cast<uint8_t>(text.size());
  entry.num_ids = static_cast<uint8_t>(ids.size());
  std::copy(text.begin(), text.end(), entry.text.begin());
  std::copy(ids.begin(), ids.end(), entry.ids.begin());
}

}  // namespace switchyard
