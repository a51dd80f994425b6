#include "data/tokenizers/added_tokens.h"

#include <algorithm>

#include "data/tokenizers/characters.h"
#include "data/tokenizers/utf8.h"

namespace switchyard {
namespace {

// Position of the character before `position`, which is not 0.
size_t previous_start(std::string_view text, size_t position) {
  do {
    --position;
  } while (position > 0 && (static_cast<unsigned char>(text[position]) & 0xc0U) == 0x80);
  return position;
}

bool ends_with_word(std::string_view text, size_t end) {
  if (end == 0) {
    return false;
  }
  size_t position = previous_start(text, end);
  return is_word_character(next_character(text, position));
}

bool starts_with_word(std::string_view text, size_t begin) {
  return begin < text.size() && is_word_character(next_character(text, begin));
}

size_t skip_white_space(std::string_view text, size_t position) {
  while (position < text.size()) {
    size_t next = position;
    if (!is_white_space(next_character(text, next))) {
      break;
    }
    position = next;
  }
  return position;
}

size_t skip_white_space_back(std::string_view text, size_t position) {
  while (position > 0) {
    const size_t begin = previous_start(text, position);
    size_t next = begin;
    if (!is_white_space(next_character(text, next))) {
      break;
    }
    position = begin;
  }
  return position;
}

}  // namespace

void AddedTokenMatcher::add(const AddedToken& token, std::string_view text) {
  trie_.insert(text, static_cast<int32_t>(tokens_.size()));
  tokens_.push_back(token);
  can_begin_[static_cast<unsigned char>(text[0])] = true;
}

bool AddedTokenMatcher::find(std::string_view text, size_t from, size_t covered,
                             Match& match) const {
  if (tokens_.empty()) {
    return false;
  }
  while (from < text.size()) {
    if (!can_begin_[static_cast<unsigned char>(text[from])]) {
      ++from;
      continue;
    }
    const ByteTrie::Match found = trie_.longest_prefix(text.substr(from));
    if (found.length == 0) {
      ++from;
      continue;
    }
    const AddedToken& token = tokens_[static_cast<size_t>(found.value)];
    const size_t end = from + found.length;
    if (token.single_word && (ends_with_word(text, from) || starts_with_word(text, end))) {
      from = end;
      continue;
    }
    match.id = token.id;
    match.next = end;
    match.begin = token.strips_left ? std::max(covered, skip_white_space_back(text, from)) : from;
    match.end = token.strips_right ? skip_white_space(text, end) : end;
    return true;
  }
  return false;
}

}  // namespace switchyard
