#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "base/error.h"

namespace switchyard {

// Calls `work(expert, first row, number of rows)` for every expert, in order. Rows lie grouped by
// expert.
template <class Work>
void for_each_expert(const std::vector<int64_t>& rows_per_expert, Work work) {
  int64_t first = 0;
  for (size_t expert = 0; expert < rows_per_expert.size(); ++expert) {
    work(static_cast<int64_t>(expert), first, rows_per_expert[expert]);
    first += rows_per_expert[expert];
  }
}

// Throws ShapeError unless the counts are not negative and add up to `rows`.
inline void check_rows_per_expert(std::string_view name,
                                  const std::vector<int64_t>& rows_per_expert, int64_t rows) {
  int64_t total = 0;
  for (const int64_t count : rows_per_expert) {
    check<ShapeError>(count >= 0, "{}: rows_per_expert must not be negative, got {}", name, count);
    total += count;
  }
  check<ShapeError>(total == rows, "{}: rows_per_expert adds up to {}, but there are {} rows", name,
                    total, rows);
}

}  // namespace switchyard
