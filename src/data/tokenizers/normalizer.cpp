#include "data/tokenizers/normalizer.h"

#include <utility>

#include "data/tokenizers/byte_alphabet.h"
#include "data/tokenizers/utf8.h"

namespace switchyard {
namespace {

// Position of the first character that is no white space.
size_t white_space_at_start(std::string_view text) {
  for (size_t position = 0; position < text.size();) {
    const size_t begin = position;
    if (!is_white_space(next_character(text, position))) {
      return begin;
    }
  }
  return text.size();
}

// Position behind the last character that is no white space.
size_t white_space_at_end(std::string_view text) {
  size_t end = text.size();
  while (end > 0) {
    size_t begin = end - 1;
    while (begin > 0 && (static_cast<unsigned char>(text[begin]) & 0xc0U) == 0x80) {
      --begin;
    }
    size_t position = begin;
    if (!is_white_space(next_character(text, position))) {
      break;
    }
    end = begin;
  }
  return end;
}

}  // namespace

NormalizerSequence::NormalizerSequence(std::vector<std::unique_ptr<Normalizer>> steps)
    : steps_(std::move(steps)) {}

void NormalizerSequence::apply(NormalizedText& text) const {
  for (const auto& step : steps_) {
    step->apply(text);
  }
}

void NormalFormNormalizer::apply(NormalizedText& text) const {
  text.text = normalize(text.text, form_, tables_);
}

void LowercaseNormalizer::apply(NormalizedText& text) const {
  text.text = lowercase(text.text);
}

void StripAccentsNormalizer::apply(NormalizedText& text) const {
  std::string out;
  out.reserve(text.text.size());
  for (size_t position = 0; position < text.text.size();) {
    const size_t begin = position;
    if (!is_accent(next_character(text.text, position))) {
      out.append(text.text, begin, position - begin);
    } else if (begin == 0) {
      text.at_start = false;
    }
  }
  text.text = std::move(out);
}

void StripNormalizer::apply(NormalizedText& text) const {
  if (right_) {
    text.text.resize(white_space_at_end(text.text));
  }
  if (left_) {
    const size_t begin = white_space_at_start(text.text);
    text.text.erase(0, begin);
    text.at_start = text.at_start && begin == 0;
  }
}

PrependNormalizer::PrependNormalizer(std::string prefix) : prefix_(std::move(prefix)) {}

void PrependNormalizer::apply(NormalizedText& text) const {
  if (!text.text.empty()) {
    text.text.insert(0, prefix_);
  }
}

ReplaceTextNormalizer::ReplaceTextNormalizer(std::string pattern, std::string content)
    : pattern_(std::move(pattern)), content_(std::move(content)) {}

void ReplaceTextNormalizer::apply(NormalizedText& text) const {
  if (pattern_.empty()) {
    return;
  }
  std::string out;
  out.reserve(text.text.size() + text.text.size() / 4);
  size_t copied = 0;
  for (size_t found = text.text.find(pattern_); found != std::string::npos;
       found = text.text.find(pattern_, copied)) {
    text.at_start = text.at_start && (found > 0 || !content_.empty());
    out.append(text.text, copied, found - copied);
    out += content_;
    copied = found + pattern_.size();
  }
  out.append(text.text, copied);
  text.text = std::move(out);
}

ReplaceRegexNormalizer::ReplaceRegexNormalizer(Regex regex, std::string content)
    : regex_(std::move(regex)), content_(std::move(content)) {}

void ReplaceRegexNormalizer::apply(NormalizedText& text) const {
  std::string out;
  out.reserve(text.text.size());
  regex_.for_each_part(text.text, [&](size_t begin, size_t end, bool is_match) {
    if (is_match) {
      text.at_start = text.at_start && (begin > 0 || begin == end || !content_.empty());
      out += content_;
    } else {
      out.append(text.text, begin, end - begin);
    }
  });
  text.text = std::move(out);
}

void ByteLevelNormalizer::apply(NormalizedText& text) const {
  text.text = to_byte_alphabet(text.text);
}

}  // namespace switchyard
