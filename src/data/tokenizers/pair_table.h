#pragma once

#include <cstdint>
#include <vector>

namespace switchyard {

// What two neighbouring symbols become when they are merged, and how early that happens.
class PairTable {
 public:
  static constexpr uint32_t kNoRank = UINT32_MAX;
  struct Merge {
    uint32_t rank = kNoRank;  // the lowest rank is merged first
    int32_t result = 0;
  };

  explicit PairTable(size_t num_pairs) {
    size_t size = 64;
    while (size < 2 * num_pairs) {
      size *= 2;
    }
    slots_.resize(size);
    mask_ = size - 1;
  }

  // A pair that is there already gets the new merge. At most num_pairs pairs.
  void put(int32_t left, int32_t right, Merge merge) {
    const uint64_t key = key_of(left, right);
    size_t slot = slot_of(key);
    while (slots_[slot].key != key && slots_[slot].key != kEmpty) {
      slot = (slot + 1) & mask_;
    }
    slots_[slot] = {key, merge};
  }

  Merge find(int32_t left, int32_t right) const {
    const uint64_t key = key_of(left, right);
    for (size_t slot = slot_of(key);; slot = (slot + 1) & mask_) {
      if (slots_[slot].key == key) {
        return slots_[slot].merge;
      }
      if (slots_[slot].key == kEmpty) {
        return {};
      }
    }
  }

 private:
  static constexpr uint64_t kEmpty = ~uint64_t{0};
  struct Slot {
    uint64_t key = kEmpty;
    Merge merge;
  };

  static uint64_t key_of(int32_t left, int32_t right) {
    return static_cast<uint64_t>(static_cast<uint32_t>(left)) << 32 | static_cast<uint32_t>(right);
  }
  size_t slot_of(uint64_t key) const {
    const uint64_t mixed = (key ^ key >> 29) * 0x9e3779b97f4a7c15U;
    return static_cast<size_t>(mixed >> 24) & mask_;
  }

  std::vector<Slot> slots_;
  size_t mask_ = 0;
};

}  // namespace switchyard
