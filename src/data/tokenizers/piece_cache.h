#pragma once

#include <array>
#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>
#include <vector>

namespace switchyard {

// Hash of a short text, for tables in memory only.
inline uint64_t hash_piece(std::string_view text) {
  constexpr uint64_t kMultiplier = 0x9e3779b97f4a7c15U;
  uint64_t hash = text.size() * kMultiplier;
  const char* at = text.data();
  size_t left = text.size();
  const auto mix = [&](uint64_t word) {
    hash = (hash ^ word) * kMultiplier;
    hash ^= hash >> 32;
  };
  for (; left >= 8; left -= 8, at += 8) {
    uint64_t word = 0;
    std::memcpy(&word, at, 8);
    mix(word);
  }
  if (left > 0) {
    uint64_t word = 0;
    std::memcpy(&word, at, left);
    mix(word);
  }
  return hash;
}

// Remembers the ids of short pieces of text: words come again and again. Each thread has one, of
// 2 MB, which serves one model at a time; a new piece takes the place of an old one.
class PieceCache {
 public:
  // This thread's cache, emptied if it last served another model. Owners have different numbers.
  static PieceCache& of_this_thread(uint64_t owner);
  static uint64_t new_owner();

  // Appends the ids of `text` if they are known.
  bool append(std::string_view text, uint64_t hash, std::vector<int32_t>& ids) const {
    const Entry& entry = entries_[hash & kMask];
    if (entry.hash != hash || entry.text_size != text.size() ||
        std::memcmp(entry.text.data(), text.data(), text.size()) != 0) {
      return false;
    }
    ids.insert(ids.end(), entry.ids.begin(), entry.ids.begin() + entry.num_ids);
    return true;
  }

  // Does nothing for a text or a list of ids that is too long.
  void put(std::string_view text, uint64_t hash, std::span<const int32_t> ids);

  static constexpr size_t kMaxTextSize = 38;

 private:
  static constexpr size_t kMaxIds = 20;
  static constexpr size_t kNumEntries = size_t{1} << 14;
  static constexpr uint64_t kMask = kNumEntries - 1;
  struct Entry {  // two cache lines
    uint64_t hash = 0;
    uint8_t text_size = 0;
    uint8_t num_ids = 0;
    std::array<char, kMaxTextSize> text;
    std::array<int32_t, kMaxIds> ids;
  };
  static_assert(sizeof(Entry) == 128);

  uint64_t owner_ = 0;
  std::vector<Entry> entries_;
};

}  // namespace switchyard
