#include "data/permutation.h"

#include <bit>

namespace switchyard {
namespace {

// Four suffice for a domain of many bits (Luby and Rackoff 1988); twice that for halves of one or
// two bits, which small data sets have.
constexpr uint64_t kRounds = 8;

uint64_t mask(int bits) {
  return (uint64_t{1} << bits) - 1;
}

}  // namespace

Permutation::Permutation(int64_t size, uint64_t seed, std::string_view name)
    : size_(size), stream_(seed, name) {
  const auto bits = static_cast<int>(std::bit_width(static_cast<uint64_t>(size) - 1));
  low_bits_ = bits / 2;
  low_mask_ = mask(low_bits_);
  high_mask_ = mask(bits - low_bits_);
}

int64_t Permutation::at(int64_t index) const {
  auto value = static_cast<uint64_t>(index);
  do {
    value = scramble(value);
  } while (value >= static_cast<uint64_t>(size_));
  return static_cast<int64_t>(value);
}

uint64_t Permutation::scramble(uint64_t value) const {
  uint64_t low = value & low_mask_;
  uint64_t high = value >> low_bits_;
  // A half has at most 31 bits, so round and half never share an index.
  for (uint64_t round = 0; round < kRounds; round += 2) {
    high ^= stream_.bits((round << 32) | low) & high_mask_;
    low ^= stream_.bits(((round + 1) << 32) | high) & low_mask_;
  }
  return (high << low_bits_) | low;
}

}  // namespace switchyard
