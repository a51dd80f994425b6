#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "config/fields.h"
#include "config/suggest.h"

namespace switchyard {

// A value as written in the file or on the command line: one word, or a list of them.
struct RawValue {
  std::vector<std::string> items;
  bool is_list = false;
};

// --- read_value() stores the value and returns "", or returns what is wrong with it, worded to
// --- follow the name of the setting: `is 0, allowed are 1 to 64`

std::string read_value(const RawValue& raw, IntegerRange range, int64_t& value);
std::string read_value(const RawValue& raw, RealRange range, double& value);
std::string read_value(const RawValue& raw, NoLimits, bool& value);
std::string read_value(const RawValue& raw, NoLimits, std::string& value);
std::string read_value(const RawValue& raw, NoLimits, std::vector<std::string>& value);

// A value as it is written on the command line, a list as `[a, b]`, and as print_value() gives it.
RawValue raw_value(const std::string& text);

// The raw value as it was written, for messages: "eight" or ["a", "b"].
std::string quoted(const RawValue& raw);

// With control characters replaced by `?`: for messages and comments, which end with their line.
std::string on_one_line(std::string text);

// --- print_value() gives YAML that reads back as the same value, to the last bit

std::string print_value(int64_t value);
std::string print_value(double value);
std::string print_value(bool value);
std::string print_value(const std::string& value);
std::string print_value(const std::vector<std::string>& value);

// --- type_text() says in words what is allowed: `integer, 1 to 64`

std::string type_text(IntegerRange range, int64_t);
std::string type_text(RealRange range, double);
std::string type_text(NoLimits, bool);
std::string type_text(NoLimits, const std::string&);
std::string type_text(NoLimits, const std::vector<std::string>&);

// --- Enumerations

template <class Enum, size_t kCount>
std::vector<std::string> word_list(const std::array<Word<Enum>, kCount>& words) {
  std::vector<std::string> texts;
  texts.reserve(kCount);
  for (const auto& word : words) {
    texts.emplace_back(word.text);
  }
  return texts;
}

// The message for a word that is not among the allowed ones.
std::string wrong_word(const RawValue& raw, const std::vector<std::string>& allowed);
std::string words_text(const std::vector<std::string>& allowed);

template <class Enum, size_t kCount>
std::string read_value(const RawValue& raw, const std::array<Word<Enum>, kCount>& words,
                       Enum& value) {
  for (const auto& word : words) {
    if (!raw.is_list && raw.items.front() == word.text) {
      value = word.value;
      return "";
    }
  }
  return wrong_word(raw, word_list(words));
}

// The word of an enumeration's value: word_of(kPrecisionWords, Precision::kBf16) is "bf16".
template <class Enum, size_t kCount>
constexpr std::string_view word_of(const std::array<Word<Enum>, kCount>& words, Enum value) {
  for (const auto& word : words) {
    if (word.value == value) {
      return word.text;
    }
  }
  return "";
}

template <class Enum, size_t kCount>
std::string type_text(const std::array<Word<Enum>, kCount>& words, Enum) {
  return words_text(word_list(words));
}

}  // namespace switchyard
