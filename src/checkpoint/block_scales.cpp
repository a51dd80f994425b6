#include "checkpoint/block_scales.h"

#include <algorithm>
#include <array>

#include <ATen/ATen.h>

namespace switchyard {
namespace {

// The value of each of the 256 bytes.
std::array<float, 256> make_fp8_values() {
  std::array<float, 256> values{};
  for (size_t byte = 0; byte < values.size(); ++byte) {
    values[byte] = static_cast<float>(
        c10::Float8_e4m3fn(static_cast<uint8_t>(byte), c10::Float8_e4m3fn::from_bits()));
  }
  return values;
}

}  // namespace

bool can_have_scales(at::ScalarType dtype) {
  return dtype == at::kFloat8_e4m3fn;
}

void decode_blocks(const BlockScales& blocks, const std::vector<float>& scales, int64_t first,
                   int64_t count, const std::byte* payload, float* values) {
  static const std::array<float, 256> fp8_values = make_fp8_values();
  for (int64_t done = 0; done < count;) {
    const int64_t at = first + done;
    const int64_t matrix = at / (blocks.rows * blocks.columns);
    const int64_t row = at / blocks.columns % blocks.rows;
    const int64_t column = at % blocks.columns;
    const int64_t block_column = column / blocks.block_columns;
    const int64_t block_end = std::min(blocks.columns, (block_column + 1) * blocks.block_columns);
    const int64_t now = std::min(count - done, block_end - column);
    const int64_t block =
        (matrix * blocks.num_block_rows() + row / blocks.block_rows) * blocks.num_block_columns() +
        block_column;
    const float scale = scales[static_cast<size_t>(block)];
    for (int64_t i = done; i < done + now; ++i) {
      values[i] = fp8_values[static_cast<uint8_t>(payload[i])] * scale;
    }
    done += now;
  }
}

}  // namespace switchyard
