#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace switchyard {

// Insertions, deletions and replacements of a character and swaps of neighbours that turn `a` into
// `b`, no character being touched twice.
size_t edit_distance(std::string_view a, std::string_view b);

// The candidate that `word` probably meant: equal but for case and dashes, a beginning of the word
// or the word's, or at most a third of its characters (and at most 3) away. "" when there is none.
std::string nearest_name(std::string_view word, const std::vector<std::string>& candidates);

// Our name (`moe.top_k`) of a setting that Megatron or Hugging Face call `key`; "" when unknown.
// Only ever used to word a suggestion.
std::string name_of_foreign_key(std::string_view key);

// All names that name_of_foreign_key() may return.
std::vector<std::string> foreign_key_targets();

}  // namespace switchyard
