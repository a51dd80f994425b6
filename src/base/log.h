#pragma once

#include <string>

#include <fmt/format.h>

namespace switchyard {

// Lines for the person who runs the program, on standard error; results go to standard output.
// Not collective: callers decide which rank speaks.
void log_line(const std::string& text);     // as it is
void log_warning(const std::string& text);  // "warning: " in front

// A line that stays below all others while work goes on: log lines appear above it, a new text
// takes its place, an empty one removes it. For terminals only: it moves the cursor.
void set_status_line(const std::string& text);

template <class... Args>
void log_info(fmt::format_string<Args...> pattern, Args&&... args) {
  log_line(fmt::format(pattern, std::forward<Args>(args)...));
}
template <class... Args>
void log_warn(fmt::format_string<Args...> pattern, Args&&... args) {
  log_warning(fmt::format(pattern, std::forward<Args>(args)...));
}

}  // namespace switchyard
