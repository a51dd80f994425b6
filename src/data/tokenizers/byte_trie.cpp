#include "data/tokenizers/byte_trie.h"

#include <utility>

namespace switchyard {

ByteTrie::ByteTrie() : slots_(64), mask_(63), values_{kNone} {}

void ByteTrie::insert(std::string_view text, int32_t value) {
  int32_t node = kRoot;
  for (const char byte : text) {
    int32_t child = step(node, byte);
    if (child == kNone) {
      if (2 * values_.size() >= slots_.size()) {
        grow();
      }
      child = static_cast<int32_t>(values_.size());
      values_.push_back(kNone);
      const uint64_t key = key_of(node, byte);
      size_t slot = slot_of(key);
      while (slots_[slot].key != kEmpty) {
        slot = (slot + 1) & mask_;
      }
      slots_[slot] = {key, child};
    }
    node = child;
  }
  values_[static_cast<size_t>(node)] = value;
}

ByteTrie::Match ByteTrie::longest_prefix(std::string_view text) const {
  Match match;
  int32_t node = kRoot;
  for (size_t i = 0; i < text.size(); ++i) {
    node = step(node, text[i]);
    if (node == kNone) {
      break;
    }
    if (value(node) != kNone) {
      match = {i + 1, value(node)};
    }
  }
  return match;
}

void ByteTrie::grow() {
  std::vector<Slot> old(2 * slots_.size());
  std::swap(old, slots_);
  mask_ = slots_.size() - 1;
  for (const Slot& entry : old) {
    if (entry.key == kEmpty) {
      continue;
    }
    size_t slot = slot_of(entry.key);
    while (slots_[slot].key != kEmpty) {
      slot = (slot + 1) & mask_;
    }
    slots_[slot] = entry;
  }
}

}  // namespace switchyard
