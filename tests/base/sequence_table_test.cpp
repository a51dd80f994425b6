#include "base/sequence_table.h"

#include <gtest/gtest.h>

#include <ATen/ATen.h>

#include "base/error.h"

namespace switchyard {
namespace {

TEST(SequenceTable, CountsPositionsFromTheStartOfEachSequence) {
  const auto table = SequenceTable::from_lengths({3, 1, 2}, 8);
  EXPECT_EQ(table.num_sequences(), 3);
  EXPECT_EQ(table.num_real_tokens(), 6);
  EXPECT_EQ(table.length(2), 2);
  EXPECT_TRUE(at::equal(table.positions, at::tensor({0, 1, 2, 0, 0, 1, 0, 0}, at::kLong)));
  EXPECT_TRUE(at::equal(table.sequence_ids(), at::tensor({0, 0, 0, 1, 2, 2, -1, -1}, at::kLong)));
}

TEST(SequenceTable, RefusesLengthsThatDoNotFit) {
  try {
    SequenceTable::from_lengths({3, 4}, 6);
    FAIL();
  } catch (const ShapeError& error) {
    EXPECT_STREQ(error.what(), "sequences of 7 tokens in all do not fit a row of 6");
  }
  EXPECT_THROW(SequenceTable::from_lengths({3, 0}), ShapeError);
}

}  // namespace
}  // namespace switchyard
