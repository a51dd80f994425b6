#pragma once

#include <array>
#include <cstdint>
#include <string_view>

namespace switchyard {

// Counter-based random numbers: a value is a pure function of (seed, stream, index), so it does not
// depend on the layout, on the number of threads, on the order of calls or on the processor. This
// is the only random source of the program.
//
// Philox4x32-10 (Salmon et al. 2011, "Parallel random numbers: as easy as 1, 2, 3"), keyed by the
// seed, counting over (stream, index).
class RandomStream {
 public:
  // Streams of different names are independent.
  RandomStream(uint64_t seed, std::string_view name);
  RandomStream(uint64_t seed, uint64_t stream) : seed_(seed), stream_(stream) {}

  uint64_t bits(uint64_t index) const;                   // 64 random bits
  double uniform(uint64_t index) const;                  // in [0, 1), 53 bits
  double normal(uint64_t index) const;                   // standard normal
  uint64_t below(uint64_t index, uint64_t limit) const;  // in [0, limit), bias below limit x 2^-64

 private:
  uint64_t seed_;
  uint64_t stream_;
};

// One block of Philox4x32-10; public for the test against the published known answers.
std::array<uint32_t, 4> philox4x32(std::array<uint32_t, 4> counter, std::array<uint32_t, 2> key);

// FNV-1a, 64 bits: names a stream, fingerprints a configuration. Not for untrusted input.
uint64_t hash_name(std::string_view text);

// Quantile of the standard normal distribution for 0 < p < 1: Wichura's PPND16 (algorithm AS 241,
// 1988), relative error about 1e-16. Only + - * / and sqrt on doubles: the same bits everywhere.
double normal_quantile(double p);

}  // namespace switchyard
