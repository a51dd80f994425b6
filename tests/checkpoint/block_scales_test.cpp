#include "checkpoint/block_scales.h"

#include <cmath>

#include <gtest/gtest.h>

#include <ATen/ATen.h>

namespace switchyard {
namespace {

constexpr int64_t kMatrices = 2;
const BlockScales kBlocks{
    .file = {}, .key = {}, .rows = 5, .columns = 7, .block_rows = 2, .block_columns = 3};

// Two matrices of 3 x 3 blocks; from any element to any other.
TEST(BlockScales, DecodeEachElementByTheScaleOfItsBlock) {
  at::manual_seed(1);
  const at::Tensor payload = at::randn({kMatrices, 5, 7}).to(at::kFloat8_e4m3fn);
  const at::Tensor scales = at::rand({kMatrices, 3, 3});
  const at::Tensor exact = payload.to(at::kFloat);
  std::vector<float> expected;
  for (int64_t i = 0; i < payload.numel(); ++i) {
    const int64_t row = i / 7 % 5;
    const int64_t column = i % 7;
    expected.push_back(exact.view({-1})[i].item<float>() *
                       scales[i / 35][row / 2][column / 3].item<float>());
  }
  const std::vector<float> all(scales.const_data_ptr<float>(),
                               scales.const_data_ptr<float>() + scales.numel());
  const auto* bytes = static_cast<const std::byte*>(payload.const_data_ptr());
  for (int64_t first = 0; first < payload.numel(); ++first) {
    for (int64_t count = 0; first + count <= payload.numel(); count += 5) {
      std::vector<float> values(static_cast<size_t>(count));
      decode_blocks(kBlocks, all, first, count, bytes + first, values.data());
      const auto begin = expected.begin() + first;
      EXPECT_EQ(values, std::vector<float>(begin, begin + count)) << first << " + " << count;
    }
  }
}

TEST(BlockScales, KnowEveryFp8Value) {
  const BlockScales whole{
      .file = "", .key = "", .rows = 1, .columns = 256, .block_rows = 1, .block_columns = 256};
  at::Tensor bytes = at::arange(256, at::kByte);
  std::vector<float> values(256);
  decode_blocks(whole, {1.0F}, 0, 256, static_cast<const std::byte*>(bytes.const_data_ptr()),
                values.data());
  const at::Tensor expected = bytes.view(at::kFloat8_e4m3fn).to(at::kFloat);
  EXPECT_TRUE(at::allclose(at::tensor(values), expected, 0, 0, /*equal_nan=*/true));
  EXPECT_EQ(values[0x7e], 448.0F);
  EXPECT_TRUE(std::isnan(values[0x7f]));
}

}  // namespace
}  // namespace switchyard
