#include "base/token_ranges.h"

#include <algorithm>

#include <ATen/ATen.h>

namespace switchyard {
namespace {

// Chunk `index` of the 2 x parts chunks of a row.
TokenRange chunk_of(int64_t num_tokens, int64_t parts, int64_t index) {
  return {num_tokens * index / (2 * parts), num_tokens * (index + 1) / (2 * parts)};
}

}  // namespace

TokenRanges::TokenRanges(std::vector<TokenRange> ranges) : ranges_(std::move(ranges)) {
  std::erase_if(ranges_, [](const TokenRange& range) { return range.size() == 0; });
}

TokenRanges TokenRanges::zigzag(int64_t num_tokens, int64_t parts, int64_t index) {
  const TokenRange front = chunk_of(num_tokens, parts, index);
  const TokenRange back = chunk_of(num_tokens, parts, 2 * parts - 1 - index);
  return front.end == back.begin ? TokenRanges(front.begin, back.end)
                                 : TokenRanges(std::vector{front, back});
}

int64_t TokenRanges::size() const {
  int64_t sum = 0;
  for (const TokenRange& range : ranges_) {
    sum += range.size();
  }
  return sum;
}

int64_t TokenRanges::count_before(int64_t token) const {
  int64_t count = 0;
  for (const TokenRange& range : ranges_) {
    count += std::clamp(token - range.begin, int64_t{0}, range.size());
  }
  return count;
}

TokenRanges TokenRanges::slice(int64_t begin, int64_t end) const {
  std::vector<TokenRange> part;
  int64_t place = 0;  // of the range's first token in the own row
  for (const TokenRange& range : ranges_) {
    const auto token_at = [&](int64_t wanted) {
      return range.begin + std::clamp(wanted - place, int64_t{0}, range.size());
    };
    part.push_back({token_at(begin), token_at(end)});
    place += range.size();
  }
  return TokenRanges(part);
}

at::Tensor TokenRanges::select(const at::Tensor& row) const {
  if (ranges_.empty()) {
    return row.narrow(0, 0, 0);
  }
  std::vector<at::Tensor> parts;
  for (const TokenRange& range : ranges_) {
    parts.push_back(row.narrow(0, range.begin, range.size()));
  }
  return parts.size() == 1 ? parts[0] : at::cat(parts);
}

at::Tensor join_zigzag(const at::Tensor& shares, int64_t parts) {
  const int64_t num_tokens = shares.size(0);
  std::vector<at::Tensor> chunks(static_cast<size_t>(2 * parts));
  int64_t place = 0;
  for (int64_t index = 0; index < parts; ++index) {
    for (const int64_t chunk : {index, 2 * parts - 1 - index}) {
      const int64_t size = chunk_of(num_tokens, parts, chunk).size();
      chunks[static_cast<size_t>(chunk)] = shares.narrow(0, place, size);
      place += size;
    }
  }
  return parts == 1 ? shares : at::cat(chunks);
}

}  // namespace switchyard
