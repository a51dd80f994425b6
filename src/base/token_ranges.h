#pragma once

#include <cstdint>
#include <vector>

#include <ATen/core/Tensor.h>

namespace switchyard {

// The tokens begin to end - 1 of a row.
struct TokenRange {
  int64_t begin = 0;
  int64_t end = 0;

  int64_t size() const { return end - begin; }
  bool operator==(const TokenRange&) const = default;
};

// The tokens of a row that one rank has: rising ranges that do not meet. The rank's own row is made
// of them, one after the other, so that its tokens are in the order of the whole row.
class TokenRanges {
 public:
  TokenRanges() = default;  // no token
  TokenRanges(int64_t begin, int64_t end) : TokenRanges(std::vector{TokenRange{begin, end}}) {}
  explicit TokenRanges(std::vector<TokenRange> ranges);  // leaves out empty ones

  // The share of rank `index` of `parts` that divide a row for causal attention: of 2 x parts
  // chunks, equal in size but for one token, the rank has chunk `index` from the front and the one
  // as far from the end, so that the tokens before its tokens are as many on every rank.
  static TokenRanges zigzag(int64_t num_tokens, int64_t parts, int64_t index);

  int64_t size() const;
  const std::vector<TokenRange>& ranges() const { return ranges_; }
  bool operator==(const TokenRanges&) const = default;

  // How many of them come before token `token` of the row: where it lies, if it is one of them.
  int64_t count_before(int64_t token) const;
  bool contains(int64_t token) const { return count_before(token) < count_before(token + 1); }

  // Those from place `begin` to `end` of the rank's own row.
  TokenRanges slice(int64_t begin, int64_t end) const;

  // The own row out of the whole one. [row tokens, ...] -> [size, ...]; a view where it is one
  // range. Differentiable.
  at::Tensor select(const at::Tensor& row) const;

 private:
  std::vector<TokenRange> ranges_;
};

// The whole row out of its zigzag shares, which lie one after the other. [row tokens, ...] -> the
// same in the order of the row. Differentiable.
at::Tensor join_zigzag(const at::Tensor& shares, int64_t parts);

}  // namespace switchyard
