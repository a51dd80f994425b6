#include "data/tokenizers/sentencepiece_normalizer.h"

#include <cstring>

#include "base/error.h"
#include "data/tokenizers/utf8.h"

namespace switchyard {
namespace {

constexpr std::string_view kSpaceMark = "\xe2\x96\x81";

// Parts of a unit of darts-clone's double array.
bool has_leaf(uint32_t unit) {
  return (unit >> 8 & 1U) != 0;
}
uint32_t value_of(uint32_t unit) {
  return unit & 0x7fffffffU;
}
uint32_t label_of(uint32_t unit) {
  return unit & 0x800000ffU;
}
size_t offset_of(uint32_t unit) {
  return size_t{unit >> 10} << ((unit & 0x200U) >> 6);
}

}  // namespace

CharacterMap::CharacterMap(std::string_view compiled, const std::string& path) {
  uint32_t size = 0;
  if (compiled.size() > sizeof(size)) {
    std::memcpy(&size, compiled.data(), sizeof(size));
    compiled.remove_prefix(sizeof(size));
  }
  check<FileError>(
      size > 0 && size % sizeof(uint32_t) == 0 && size < compiled.size() && compiled.back() == '\0',
      "{}: the character map is damaged", path);
  units_.resize(size / sizeof(uint32_t));
  std::memcpy(units_.data(), compiled.data(), size);
  replacements_ = compiled.substr(size);
}

CharacterMap::Match CharacterMap::longest_match(std::string_view text) const {
  Match match;
  size_t node = offset_of(units_[0]);
  for (size_t i = 0; i < text.size(); ++i) {
    const auto byte = static_cast<unsigned char>(text[i]);
    node ^= byte;
    if (node >= units_.size() || label_of(units_[node]) != byte) {
      break;
    }
    const uint32_t unit = units_[node];
    node ^= offset_of(unit);
    if (has_leaf(unit) && node < units_.size() && value_of(units_[node]) < replacements_.size()) {
      match = {i + 1, replacements_.data() + value_of(units_[node])};
    }
  }
  return match;
}

SentencePieceNormalizer::SentencePieceNormalizer(const SentencePieceModel& model,
                                                 const ByteTrie& user_defined,
                                                 const std::string& path)
    : user_defined_(user_defined),
      add_dummy_prefix_(model.add_dummy_prefix),
      space_as_suffix_(model.space_as_suffix),
      remove_extra_whitespaces_(model.remove_extra_whitespaces),
      space_(model.escape_whitespaces ? kSpaceMark : " ") {
  if (!model.character_map.empty()) {
    map_.emplace_back(model.character_map, path);
  }
}

std::string_view SentencePieceNormalizer::replace_prefix(std::string_view text,
                                                         size_t& length) const {
  length = user_defined_.longest_prefix(text).length;
  if (length > 0) {
    return text.substr(0, length);
  }
  if (!map_.empty()) {
    const CharacterMap::Match match = map_[0].longest_match(text);
    if (match.length > 0) {
      length = match.length;
      return match.replacement;
    }
  }
  length = character_length(text[0]);
  return text.substr(0, length);
}

std::string SentencePieceNormalizer::apply(std::string_view text) const {
  size_t length = 0;
  while (remove_extra_whitespaces_ && !text.empty() && replace_prefix(text, length) == " ") {
    text.remove_prefix(length);
  }
  std::string out;
  if (text.empty()) {
    return out;
  }
  out.reserve(text.size() + text.size() / 2);
  if (!space_as_suffix_ && add_dummy_prefix_) {
    out += space_;
  }
  bool was_space = remove_extra_whitespaces_;
  while (!text.empty()) {
    std::string_view replaced = replace_prefix(text, length);
    while (was_space && replaced.starts_with(' ')) {
      replaced.remove_prefix(1);
    }
    for (const char c : replaced) {
      if (c == ' ') {
        out += space_;
      } else {
        out += c;
      }
    }
    if (!replaced.empty()) {
      was_space = replaced.ends_with(' ');
    }
    was_space = was_space && remove_extra_whitespaces_;
    text.remove_prefix(length);
  }
  while (remove_extra_whitespaces_ && out.ends_with(space_)) {
    out.resize(out.size() - space_.size());
  }
  if (space_as_suffix_ && add_dummy_prefix_) {
    out += space_;
  }
  return out;
}

}  // namespace switchyard
