#include "config/values.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <string>
#include <system_error>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <yaml-cpp/yaml.h>

namespace switchyard {
namespace {

std::string range_text(IntegerRange range) {
  return range.high == kNoLimit ? fmt::format("{} or more", range.low)
                                : fmt::format("{} to {}", range.low, range.high);
}

std::string range_text(RealRange range) {
  return fmt::format("{} to {}", range.low, range.high);
}

template <class Range>
std::string outside(const RawValue& raw, Range range) {
  return fmt::format("is {}, allowed are {}", raw.items.front(), range_text(range));
}

// The whole text as a number; the error code tells apart what is no number and what is too large.
template <class Number>
std::errc read_number(const RawValue& raw, Number& value) {
  if (raw.is_list) {
    return std::errc::invalid_argument;
  }
  const std::string& text = raw.items.front();
  const auto result = std::from_chars(text.data(), text.data() + text.size(), value);
  if (result.ptr != text.data() + text.size()) {
    return std::errc::invalid_argument;
  }
  return result.ec;
}

std::string in_quotes(const std::string& text) {
  YAML::Emitter out;
  out << YAML::DoubleQuoted << text;
  return out.c_str();
}

}  // namespace

std::string quoted(const RawValue& raw) {
  return raw.is_list ? print_value(raw.items) : in_quotes(raw.items.front());
}

std::string on_one_line(std::string text) {
  std::replace_if(
      text.begin(), text.end(),
      [](char letter) { return (letter >= 0 && letter < ' ') || letter == 0x7f; }, '?');
  return text;
}

std::string read_value(const RawValue& raw, IntegerRange range, int64_t& value) {
  int64_t number = 0;
  const std::errc error = read_number(raw, number);
  if (error == std::errc::invalid_argument) {
    return fmt::format("must be a whole number, got {}", quoted(raw));
  }
  if (error != std::errc() || number < range.low || number > range.high) {
    return outside(raw, range);
  }
  value = number;
  return "";
}

std::string read_value(const RawValue& raw, RealRange range, double& value) {
  double number = 0.0;
  const std::errc error = read_number(raw, number);
  if (error == std::errc::invalid_argument || !std::isfinite(number)) {
    return fmt::format("must be a number, got {}", quoted(raw));
  }
  if (error != std::errc() || number < range.low || number > range.high) {
    return outside(raw, range);
  }
  value = number;
  return "";
}

std::string read_value(const RawValue& raw, NoLimits, bool& value) {
  const bool is_true = !raw.is_list && raw.items.front() == "true";
  const bool is_false = !raw.is_list && raw.items.front() == "false";
  if (!is_true && !is_false) {
    return fmt::format("must be true or false, got {}", quoted(raw));
  }
  value = is_true;
  return "";
}

std::string read_value(const RawValue& raw, NoLimits, std::string& value) {
  if (raw.is_list) {
    return fmt::format("must be a single text, got the list {}", quoted(raw));
  }
  value = raw.items.front();
  return "";
}

std::string read_value(const RawValue& raw, NoLimits, std::vector<std::string>& value) {
  for (const std::string& item : raw.items) {
    if (item.empty()) {
      return fmt::format("must not hold an empty text, got {}", quoted(raw));
    }
  }
  value = raw.items;
  return "";
}

std::string print_value(int64_t value) {
  return fmt::format("{}", value);
}
std::string print_value(double value) {
  return fmt::format("{}", value);
}  // shortest exact
std::string print_value(bool value) {
  return value ? "true" : "false";
}
std::string print_value(const std::string& value) {
  return in_quotes(value);
}

std::string print_value(const std::vector<std::string>& value) {
  std::vector<std::string> items;
  items.reserve(value.size());
  for (const std::string& item : value) {
    items.push_back(in_quotes(item));
  }
  return fmt::format("[{}]", fmt::join(items, ", "));
}

std::string type_text(IntegerRange range, int64_t) {
  return "integer, " + range_text(range);
}
std::string type_text(RealRange range, double) {
  return "number, " + range_text(range);
}
std::string type_text(NoLimits, bool) {
  return "true or false";
}
std::string type_text(NoLimits, const std::string&) {
  return "text";
}
std::string type_text(NoLimits, const std::vector<std::string>&) {
  return "list of texts, or one text";
}

std::string wrong_word(const RawValue& raw, const std::vector<std::string>& allowed) {
  const std::string nearest = raw.is_list ? "" : nearest_name(raw.items.front(), allowed);
  return fmt::format("is {}, allowed are {}{}", quoted(raw), fmt::join(allowed, ", "),
                     nearest.empty() ? "" : fmt::format("; did you mean {}?", nearest));
}

std::string words_text(const std::vector<std::string>& allowed) {
  return fmt::format("one of {}", fmt::join(allowed, ", "));
}

}  // namespace switchyard
