#include "base/token_batch.h"

#include <gtest/gtest.h>

#include <ATen/ATen.h>

namespace switchyard {
namespace {

// Sequences of 4, 1 and 2 tokens, and one of padding.
TokenBatch packed() {
  TokenBatch batch;
  batch.table = SequenceTable::from_lengths({4, 1, 2}, 8);
  batch.tokens = at::arange(10, 18, at::kLong);
  batch.labels = at::arange(11, 19, at::kLong);
  batch.weights = at::tensor({1.0F, 0.5F, 0.0F, 2.0F, 1.0F, 1.0F, 3.0F, 0.0F});
  return batch;
}

TEST(TokenBatch, LooksFurtherWithinEachSequence) {
  TokenBatch batch = packed();
  batch.look_further(2);
  ASSERT_EQ(batch.further.size(), 2U);
  const TokenBatch::Further& one = batch.further[0];
  const auto longs = [](std::initializer_list<int64_t> values) { return at::tensor(values); };
  EXPECT_TRUE(at::equal(one.tokens, longs({11, 12, 13, 0, 0, 16, 0, 0})));
  EXPECT_TRUE(at::equal(one.labels, longs({12, 13, 14, -100, -100, 17, -100, -100})));
  EXPECT_TRUE(at::equal(one.weights, at::tensor({0.5F, 0.0F, 2.0F, 0.F, 0.F, 3.0F, 0.F, 0.F})));
  const TokenBatch::Further& two = batch.further[1];
  EXPECT_TRUE(at::equal(two.tokens, longs({12, 13, 0, 0, 0, 0, 0, 0})));
  EXPECT_TRUE(at::equal(two.labels, longs({13, 14, -100, -100, -100, -100, -100, -100})));
  EXPECT_TRUE(at::equal(two.weights, at::tensor({0.0F, 2.0F, 0.F, 0.F, 0.F, 0.F, 0.F, 0.F})));
}

TEST(TokenBatch, SharesWhatItSeesFurther) {
  TokenBatch batch = packed();
  batch.look_further(1);
  for (int64_t rank = 0; rank < 2; ++rank) {
    const TokenBatch share = batch.share(2, rank);
    ASSERT_EQ(share.further.size(), 1U);
    const TokenRanges& held = share.table.held;
    EXPECT_TRUE(at::equal(share.further[0].tokens, held.select(batch.further[0].tokens)));
    EXPECT_TRUE(at::equal(share.further[0].weights, held.select(batch.further[0].weights)));
  }
}

}  // namespace
}  // namespace switchyard
