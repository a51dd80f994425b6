#pragma once

#include <cstddef>
#include <cstdint>

namespace switchyard {

// CRC-32C (Castagnoli polynomial, as in iSCSI, RFC 3720 appendix B.4) of `size` bytes, continuing
// from `previous`: crc32c(ab) = crc32c(b, crc32c(a)). Finds accidents in files, not forgery.
// Uses the processor's own instruction where there is one (SSE4.2, asked at run time).
uint32_t crc32c(const void* bytes, size_t size, uint32_t previous = 0);

// The same out of tables, eight bytes at a time, for processors without the instruction; public for
// the test that compares both.
uint32_t crc32c_by_table(const void* bytes, size_t size, uint32_t previous = 0);

}  // namespace switchyard
