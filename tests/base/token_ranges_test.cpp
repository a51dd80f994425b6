#include "base/token_ranges.h"

#include <gtest/gtest.h>

#include <ATen/ATen.h>

#include "base/token_batch.h"

namespace switchyard {
namespace {

std::vector<int64_t> tokens_of(const TokenRanges& tokens) {
  std::vector<int64_t> all;
  for (const TokenRange& range : tokens.ranges()) {
    for (int64_t token = range.begin; token < range.end; ++token) {
      all.push_back(token);
    }
  }
  return all;
}

TEST(TokenRanges, ZigzagGivesARankAChunkFromEachEnd) {
  EXPECT_EQ(TokenRanges::zigzag(12, 3, 0), TokenRanges(std::vector<TokenRange>{{0, 2}, {10, 12}}));
  EXPECT_EQ(TokenRanges::zigzag(12, 3, 1), TokenRanges(std::vector<TokenRange>{{2, 4}, {8, 10}}));
  EXPECT_EQ(TokenRanges::zigzag(12, 3, 2), TokenRanges(4, 8));
  EXPECT_EQ(TokenRanges::zigzag(12, 1, 0), TokenRanges(0, 12));
}

TEST(TokenRanges, ZigzagSharesBalanceTheTokensSeen) {
  for (const int64_t parts : {2, 3, 4, 8}) {
    const int64_t num_tokens = 2 * parts * 5;
    std::vector<int64_t> seen;
    for (int64_t index = 0; index < parts; ++index) {
      seen.push_back(0);
      for (const int64_t token : tokens_of(TokenRanges::zigzag(num_tokens, parts, index))) {
        seen.back() += token + 1;
      }
    }
    EXPECT_EQ(seen, std::vector<int64_t>(seen.size(), seen[0])) << parts;
  }
}

TEST(TokenRanges, ZigzagSharesHoldEveryTokenOnce) {
  for (int64_t num_tokens = 0; num_tokens < 40; ++num_tokens) {
    for (int64_t parts = 1; parts < 6; ++parts) {
      std::vector<int64_t> all;
      std::vector<at::Tensor> shares;
      const at::Tensor row = at::arange(num_tokens);
      for (int64_t index = 0; index < parts; ++index) {
        const TokenRanges share = TokenRanges::zigzag(num_tokens, parts, index);
        const auto tokens = tokens_of(share);
        ASSERT_EQ(share.size(), std::ssize(tokens));
        ASSERT_TRUE(std::is_sorted(tokens.begin(), tokens.end()));
        all.insert(all.end(), tokens.begin(), tokens.end());
        shares.push_back(share.select(row));
        ASSERT_TRUE(at::equal(shares.back(), at::tensor(tokens, at::kLong)));
      }
      std::sort(all.begin(), all.end());
      std::vector<int64_t> every(static_cast<size_t>(num_tokens));
      std::iota(every.begin(), every.end(), 0);
      ASSERT_EQ(all, every) << num_tokens << " in " << parts;
      ASSERT_TRUE(at::equal(join_zigzag(at::cat(shares), parts), row));
    }
  }
}

TEST(TokenRanges, SlicesAndCountsAreThoseOfTheOwnRow) {
  const TokenRanges share = TokenRanges::zigzag(23, 2, 0);  // 0 to 4 and 17 to 22
  const auto tokens = tokens_of(share);
  for (int64_t begin = 0; begin <= share.size(); ++begin) {
    for (int64_t end = begin; end <= share.size(); ++end) {
      EXPECT_EQ(tokens_of(share.slice(begin, end)),
                std::vector<int64_t>(tokens.begin() + begin, tokens.begin() + end));
    }
  }
  for (int64_t token = 0; token <= 23; ++token) {
    EXPECT_EQ(share.count_before(token),
              std::count_if(tokens.begin(), tokens.end(), [&](int64_t t) { return t < token; }));
    EXPECT_EQ(share.contains(token),
              std::find(tokens.begin(), tokens.end(), token) != tokens.end());
  }
}

TEST(TokenBatch, AShareKeepsTheRowAndItsOwnTokens) {
  TokenBatch batch;
  batch.table = SequenceTable::from_lengths({5, 4}, 12);
  batch.tokens = at::arange(12);
  batch.labels = at::arange(12) + 100;
  batch.weights = at::arange(12, at::kFloat);
  batch.first_token = 7;
  const TokenBatch part = batch.share(3, 1);
  const at::Tensor held = at::tensor({2, 3, 8, 9}, at::kLong);
  EXPECT_TRUE(at::equal(part.tokens, held));
  EXPECT_TRUE(at::equal(part.labels, held + 100));
  EXPECT_TRUE(at::equal(part.weights, held.to(at::kFloat)));
  EXPECT_TRUE(at::equal(part.table.positions, at::tensor({2, 3, 3, 0}, at::kLong)));
  EXPECT_EQ(part.table.starts, batch.table.starts);
  EXPECT_EQ(part.table.num_tokens, 12);
  EXPECT_EQ(part.table.num_shares, 3);
  EXPECT_EQ(part.table.share_sizes(), (std::vector<int64_t>{4, 4, 4}));
  EXPECT_EQ(part.table.num_real(part.table.held), 3);
  EXPECT_EQ(part.first_token, 7);
}

}  // namespace
}  // namespace switchyard
