#pragma once

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>

namespace switchyard {

// A rule returns its line when it is broken and "" when it holds.
template <class... Args>
std::string unless(bool holds, fmt::format_string<Args...> pattern, Args&&... args) {
  return holds ? "" : fmt::format(pattern, std::forward<Args>(args)...);
}

inline std::string multiple_of(std::string_view name, int64_t value, std::string_view divisor_name,
                               int64_t divisor, std::string_view advice = "") {
  return unless(divisor > 0 && value % divisor == 0, "{} ({}) must be a multiple of {} ({}){}",
                name, value, divisor_name, divisor, advice);
}

inline std::vector<std::string> broken_lines(std::vector<std::string> lines) {
  lines.erase(std::remove(lines.begin(), lines.end(), ""), lines.end());
  return lines;
}

inline void append(std::vector<std::string>& lines, const std::vector<std::string>& more) {
  lines.insert(lines.end(), more.begin(), more.end());
}

}  // namespace switchyard
