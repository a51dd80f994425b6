#include "data/tokenizers/utf8.h"

#include <cstdint>
#include <cstring>

namespace switchyard {
namespace {

constexpr std::string_view kReplacement = "\xef\xbf\xbd";

// Bytes at the beginning of `text` below 0x80, to a multiple of 8 or a few less than there are.
size_t ascii_prefix(std::string_view text) {
  size_t size = 0;
  while (size + 8 <= text.size()) {
    uint64_t bytes = 0;
    std::memcpy(&bytes, text.data() + size, 8);
    if ((bytes & 0x8080808080808080U) != 0) {
      break;
    }
    size += 8;
  }
  return size;
}

// Appends the repaired `text` and returns how many bytes at its end are an unfinished character.
size_t append_repaired(std::string_view text, std::string& out) {
  while (!text.empty()) {
    const size_t valid = valid_utf8_prefix(text);
    out += text.substr(0, valid);
    text.remove_prefix(valid);
    if (text.empty()) {
      break;
    }
    size_t length = 0;
    if (scan_utf8(text, length) == Utf8Scan::kUnfinished) {
      return text.size();
    }
    out += kReplacement;
    text.remove_prefix(length);
  }
  return 0;
}

}  // namespace

Utf8Scan scan_utf8(std::string_view text, size_t& length) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned lead = byte(0);
  length = 1;
  if (lead < 0x80) {
    return Utf8Scan::kCharacter;
  }
  if (lead < 0xc2 || lead > 0xf4) {
    return Utf8Scan::kBroken;
  }
  const size_t needed = lead < 0xe0 ? 2 : lead < 0xf0 ? 3 : 4;
  // No overlong forms, no surrogates, nothing above U+10FFFF.
  unsigned low = lead == 0xe0 ? 0xa0 : lead == 0xf0 ? 0x90 : 0x80;
  unsigned high = lead == 0xed ? 0x9f : lead == 0xf4 ? 0x8f : 0xbf;
  while (length < needed) {
    if (length == text.size()) {
      return Utf8Scan::kUnfinished;
    }
    if (byte(length) < low || byte(length) > high) {
      return Utf8Scan::kBroken;
    }
    low = 0x80;
    high = 0xbf;
    ++length;
  }
  return Utf8Scan::kCharacter;
}

char32_t next_character(std::string_view text, size_t& position) {
  const auto byte = [&](size_t i) {
    return static_cast<char32_t>(static_cast<unsigned char>(text[position + i]));
  };
  const char32_t lead = byte(0);
  char32_t character = lead;
  size_t length = 1;
  if (lead >= 0xf0) {
    character = (lead & 7U) << 18 | (byte(1) & 63U) << 12 | (byte(2) & 63U) << 6 | (byte(3) & 63U);
    length = 4;
  } else if (lead >= 0xe0) {
    character = (lead & 15U) << 12 | (byte(1) & 63U) << 6 | (byte(2) & 63U);
    length = 3;
  } else if (lead >= 0x80) {
    character = (lead & 31U) << 6 | (byte(1) & 63U);
    length = 2;
  }
  position += length;
  return character;
}

void append_character(std::string& text, char32_t character) {
  const auto add = [&](char32_t byte) { text.push_back(static_cast<char>(byte)); };
  if (character < 0x80) {
    add(character);
  } else if (character < 0x800) {
    add(0xc0U | character >> 6);
    add(0x80U | (character & 63U));
  } else if (character < 0x10000) {
    add(0xe0U | character >> 12);
    add(0x80U | (character >> 6 & 63U));
    add(0x80U | (character & 63U));
  } else {
    add(0xf0U | character >> 18);
    add(0x80U | (character >> 12 & 63U));
    add(0x80U | (character >> 6 & 63U));
    add(0x80U | (character & 63U));
  }
}

size_t valid_utf8_prefix(std::string_view text) {
  size_t position = 0;
  while (position < text.size()) {
    position += ascii_prefix(text.substr(position));
    if (position == text.size()) {
      break;
    }
    size_t length = 0;
    if (scan_utf8(text.substr(position), length) != Utf8Scan::kCharacter) {
      break;
    }
    position += length;
  }
  return position;
}

std::string repair_utf8(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  Utf8Repair repair;
  repair.push(text, out);
  repair.finish(out);
  return out;
}

void Utf8Repair::push(std::string_view bytes, std::string& text) {
  if (held_.empty()) {
    held_ = bytes.substr(bytes.size() - append_repaired(bytes, text));
    return;
  }
  held_ += bytes;
  const size_t unfinished = append_repaired(held_, text);
  held_.erase(0, held_.size() - unfinished);
}

void Utf8Repair::finish(std::string& text) {
  if (!held_.empty()) {
    text += kReplacement;
    held_.clear();
  }
}

}  // namespace switchyard
