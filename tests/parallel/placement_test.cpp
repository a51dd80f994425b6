#include "parallel/placement.h"

#include <gtest/gtest.h>

namespace switchyard {
namespace {

TEST(ShardRange, CutsIntoConsecutivePartsThatDifferByOneAtMost) {
  for (int64_t parts = 1; parts <= 9; ++parts) {
    for (int64_t full = 0; full <= 40; ++full) {
      int64_t next = 0;
      for (int64_t i = 0; i < parts; ++i) {
        const ShardRange range = shard_range(full, parts, i);
        EXPECT_EQ(range.begin, next);
        EXPECT_GE(range.size(), full / parts);
        EXPECT_LE(range.size(), (full + parts - 1) / parts);
        next = range.end;
      }
      EXPECT_EQ(next, full);
    }
  }
}

TEST(Placement, NamesItselfInMessages) {
  EXPECT_EQ(to_string(Placement::invariant()), "invariant");
  EXPECT_EQ(to_string(Placement::replicated()), "replicated");
  EXPECT_EQ(to_string(Placement::partial()), "partial");
  EXPECT_EQ(to_string(Placement::sharded(1, 64)), "sharded(1 of 64)");
}

TEST(Placement, IsEqualOnlyWithTheSameCut) {
  EXPECT_EQ(Placement::sharded(1, 64), Placement::sharded(1, 64));
  EXPECT_NE(Placement::sharded(1, 64), Placement::sharded(0, 64));
  EXPECT_NE(Placement::sharded(1, 64), Placement::sharded(1, 65));
  EXPECT_NE(Placement::invariant(), Placement::replicated());
}

}  // namespace
}  // namespace switchyard
