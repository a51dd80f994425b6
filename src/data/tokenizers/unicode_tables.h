#pragma once

#include <algorithm>
#include <span>

namespace switchyard {

// Tables of characters as the tokenizers package knows them, where PCRE2 and utf8proc may follow
// another version of Unicode: equal ids need equal tables.

struct CodePointRange {
  char32_t first;
  char32_t last;
};

struct CategoryRange {
  char32_t first;
  char32_t last;
  const char* category;  // of two letters, as in "Lu"
};

struct CodePointPair {
  char32_t from;
  char32_t to;
};

// All are in order of their characters.
std::span<const CategoryRange> newer_characters();  // assigned after Unicode 14
std::span<const CodePointRange> number_ranges();
std::span<const CodePointRange> punctuation_ranges();
std::span<const CodePointRange> accent_ranges();
std::span<const CodePointRange> ranges_unknown_to_normal_forms();
std::span<const CodePointPair> newer_lowercase();

inline bool is_in(std::span<const CodePointRange> ranges, char32_t character) {
  const auto after = std::upper_bound(
      ranges.begin(), ranges.end(), character,
      [](char32_t value, const CodePointRange& range) { return value < range.first; });
  return after != ranges.begin() && character <= std::prev(after)->last;
}

}  // namespace switchyard
