#include "base/crc32c.h"

#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "base/random.h"

namespace switchyard {
namespace {

// One bit at a time, straight from the definition.
uint32_t crc32c_by_bit(const std::string& bytes) {
  uint32_t crc = 0xffffffff;
  for (const char byte : bytes) {
    crc ^= static_cast<unsigned char>(byte);
    for (int bit = 0; bit < 8; ++bit) {
      crc = (crc >> 1) ^ ((crc & 1) != 0 ? 0x82f63b78U : 0U);
    }
  }
  return ~crc;
}

std::string random_bytes(size_t size) {
  const RandomStream stream(3, "crc32c");
  std::string bytes(size, '\0');
  for (size_t i = 0; i < size; ++i) {
    bytes[i] = static_cast<char>(stream.bits(i));
  }
  return bytes;
}

// RFC 3720, appendix B.4, and the check value of the catalogue of parametrised CRC algorithms.
TEST(Crc32c, GivesThePublishedKnownAnswers) {
  std::string rising(32, '\0');
  std::string falling(32, '\0');
  for (size_t i = 0; i < 32; ++i) {
    rising[i] = static_cast<char>(i);
    falling[i] = static_cast<char>(31 - i);
  }
  const std::vector<std::pair<std::string, uint32_t>> known = {
      {"", 0},
      {"123456789", 0xe3069283},
      {std::string(32, '\0'), 0x8a9136aa},
      {std::string(32, '\xff'), 0x62a8ab43},
      {rising, 0x46dd794e},
      {falling, 0x113fdb5c}};
  for (const auto& [bytes, expected] : known) {
    EXPECT_EQ(crc32c(bytes.data(), bytes.size()), expected);
    EXPECT_EQ(crc32c_by_table(bytes.data(), bytes.size()), expected);
  }
}

TEST(Crc32c, EqualsTheBitwiseDefinitionAtEverySizeAndAlignment) {
  const std::string bytes = random_bytes(200);
  for (size_t start = 0; start < 9; ++start) {
    for (size_t size = 0; start + size <= bytes.size(); ++size) {
      const uint32_t expected = crc32c_by_bit(bytes.substr(start, size));
      ASSERT_EQ(crc32c(bytes.data() + start, size), expected) << start << " " << size;
      ASSERT_EQ(crc32c_by_table(bytes.data() + start, size), expected) << start << " " << size;
    }
  }
}

TEST(Crc32c, ContinuesFromAnEarlierPart) {
  const std::string bytes = random_bytes(100);
  const uint32_t whole = crc32c(bytes.data(), bytes.size());
  for (size_t cut = 0; cut <= bytes.size(); ++cut) {
    const uint32_t first = crc32c(bytes.data(), cut);
    EXPECT_EQ(crc32c(bytes.data() + cut, bytes.size() - cut, first), whole);
    EXPECT_EQ(crc32c_by_table(bytes.data() + cut, bytes.size() - cut, first), whole);
  }
}

}  // namespace
}  // namespace switchyard
