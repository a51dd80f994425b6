#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

namespace switchyard {

// Tokens of one sequence that a scan computes at once.
struct SequenceChunk {
  int64_t begin;     // first token, in the row
  int64_t size;      // tokens
  int64_t sequence;  // which one
  bool is_first;     // of its sequence
  bool is_last;
};

// The sequences of a table, cut from their first token on: no chunk crosses a boundary, so that a
// sequence has the same chunks wherever it lies. `starts` as in SequenceTable.
inline std::vector<SequenceChunk> sequence_chunks(const std::vector<int64_t>& starts,
                                                  int64_t chunk_size) {
  std::vector<SequenceChunk> chunks;
  for (size_t i = 0; i + 1 < starts.size(); ++i) {
    for (int64_t begin = starts[i]; begin < starts[i + 1]; begin += chunk_size) {
      const int64_t size = std::min(chunk_size, starts[i + 1] - begin);
      chunks.push_back({begin, size, static_cast<int64_t>(i), begin == starts[i],
                        begin + size == starts[i + 1]});
    }
  }
  return chunks;
}

// Tokens of the longest one, and 1 where there is none.
inline int64_t longest_of(const std::vector<SequenceChunk>& chunks) {
  int64_t longest = 1;
  for (const SequenceChunk& chunk : chunks) {
    longest = std::max(longest, chunk.size);
  }
  return longest;
}

}  // namespace switchyard
