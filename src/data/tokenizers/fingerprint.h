#pragma once

#include <cstdint>
#include <string_view>

namespace switchyard {

// Adds up a 64-bit FNV-1a hash of texts and numbers, in which each text ends where it ends.
class Fingerprint {
 public:
  void add(std::string_view text) {
    add(static_cast<int64_t>(text.size()));
    for (const char c : text) {
      add_byte(static_cast<unsigned char>(c));
    }
  }
  void add(int64_t number) {
    for (int shift = 0; shift < 64; shift += 8) {
      add_byte(static_cast<uint64_t>(number) >> shift & 255U);
    }
  }
  uint64_t value() const { return hash_; }

 private:
  void add_byte(uint64_t byte) { hash_ = (hash_ ^ byte) * 0x100000001b3U; }

  uint64_t hash_ = 0xcbf29ce484222325U;
};

}  // namespace switchyard
