#include "base/crc32c.h"

#include <array>
#include <cstring>

#if defined(__x86_64__)
#include <nmmintrin.h>
#endif

namespace switchyard {
namespace {

constexpr uint32_t kReversedPolynomial = 0x82f63b78;

// tables[k][b]: what byte b contributes when k zero bytes follow it.
using Tables = std::array<std::array<uint32_t, 256>, 8>;

constexpr Tables make_tables() {
  Tables tables{};
  for (uint32_t byte = 0; byte < 256; ++byte) {
    uint32_t crc = byte;
    for (int bit = 0; bit < 8; ++bit) {
      crc = (crc >> 1) ^ ((crc & 1) != 0 ? kReversedPolynomial : 0);
    }
    tables[0][byte] = crc;
  }
  for (size_t zeros = 1; zeros < tables.size(); ++zeros) {
    for (size_t byte = 0; byte < 256; ++byte) {
      const uint32_t before = tables[zeros - 1][byte];
      tables[zeros][byte] = (before >> 8) ^ tables[0][before & 0xff];
    }
  }
  return tables;
}

constexpr Tables kTables = make_tables();

using Crc32c = uint32_t (*)(const void*, size_t, uint32_t);

#if defined(__x86_64__)
__attribute__((target("sse4.2"))) uint32_t crc32c_by_instruction(const void* bytes, size_t size,
                                                                 uint32_t previous) {
  const auto* next = static_cast<const unsigned char*>(bytes);
  uint64_t crc = ~previous;
  for (; size >= 8; size -= 8, next += 8) {
    uint64_t word = 0;
    std::memcpy(&word, next, 8);
    crc = _mm_crc32_u64(crc, word);
  }
  auto narrow = static_cast<uint32_t>(crc);
  for (; size > 0; --size, ++next) {
    narrow = _mm_crc32_u8(narrow, *next);
  }
  return ~narrow;
}

Crc32c best_for_this_processor() {
  return __builtin_cpu_supports("sse4.2") != 0 ? crc32c_by_instruction : crc32c_by_table;
}
#else
Crc32c best_for_this_processor() {
  return crc32c_by_table;
}
#endif

}  // namespace

uint32_t crc32c(const void* bytes, size_t size, uint32_t previous) {
  static const Crc32c best = best_for_this_processor();
  return best(bytes, size, previous);
}

uint32_t crc32c_by_table(const void* bytes, size_t size, uint32_t previous) {
  const auto* next = static_cast<const unsigned char*>(bytes);
  uint32_t crc = ~previous;
  for (; size >= 8; size -= 8, next += 8) {
    // The running value is folded into the first four bytes, in order of address.
    crc = kTables[7][next[0] ^ (crc & 0xff)] ^ kTables[6][next[1] ^ ((crc >> 8) & 0xff)] ^
          kTables[5][next[2] ^ ((crc >> 16) & 0xff)] ^ kTables[4][next[3] ^ (crc >> 24)] ^
          kTables[3][next[4]] ^ kTables[2][next[5]] ^ kTables[1][next[6]] ^ kTables[0][next[7]];
  }
  for (; size > 0; --size, ++next) {
    crc = (crc >> 8) ^ kTables[0][(crc ^ *next) & 0xff];
  }
  return ~crc;
}

}  // namespace switchyard
