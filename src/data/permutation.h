#pragma once

#include <cstdint>
#include <string_view>

#include "base/random.h"

namespace switchyard {

// A random order of 0 .. size - 1 that is computed, never stored: any element in well under a
// microsecond, whatever the size.
//
// A Feistel network over the smallest power of two that holds `size`, its rounds keyed by
// (seed, name), walked until it lands below `size` again (cycle-walking; Black and Rogaway 2002,
// "Ciphers with arbitrary finite domains"). Fewer than two steps are expected. The same on every
// machine; a const object may be used from several threads.
class Permutation {
 public:
  // `size` from 1 to 2^62.
  Permutation(int64_t size, uint64_t seed, std::string_view name);

  int64_t size() const { return size_; }
  int64_t at(int64_t index) const;  // 0 <= index < size

 private:
  uint64_t scramble(uint64_t value) const;

  int64_t size_;
  int low_bits_;
  uint64_t low_mask_;
  uint64_t high_mask_;
  RandomStream stream_;
};

}  // namespace switchyard
