#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

namespace switchyard {

// A set of texts, each with a number, walked byte by byte. Children are found by hashing, so that
// a node costs some 20 bytes however many bytes can follow it.
class ByteTrie {
 public:
  static constexpr int32_t kNone = -1;
  static constexpr int32_t kRoot = 0;

  ByteTrie();

  // Texts are not empty. A text that is there already gets the new number.
  void insert(std::string_view text, int32_t value);

  // The node behind `node` for this byte, or kNone.
  int32_t step(int32_t node, char byte) const {
    const uint64_t key = key_of(node, byte);
    for (size_t slot = slot_of(key);; slot = (slot + 1) & mask_) {
      if (slots_[slot].key == key) {
        return slots_[slot].child;
      }
      if (slots_[slot].key == kEmpty) {
        return kNone;
      }
    }
  }

  // The number of the text that ends at `node`, or kNone.
  int32_t value(int32_t node) const { return values_[static_cast<size_t>(node)]; }

  // The longest text that `text` begins with; its length is 0 when there is none.
  struct Match {
    size_t length = 0;
    int32_t value = kNone;
  };
  Match longest_prefix(std::string_view text) const;

 private:
  static constexpr uint64_t kEmpty = ~uint64_t{0};
  struct Slot {
    uint64_t key = kEmpty;
    int32_t child = kNone;
  };

  static uint64_t key_of(int32_t node, char byte) {
    return static_cast<uint64_t>(static_cast<uint32_t>(node)) << 8 |
           static_cast<unsigned char>(byte);
  }
  size_t slot_of(uint64_t key) const {
    return static_cast<size_t>(key * 0x9e3779b97f4a7c15U >> 20) & mask_;
  }
  void grow();

  std::vector<Slot> slots_;
  size_t mask_ = 0;
  std::vector<int32_t> values_;
};

}  // namespace switchyard
