#include "base/log.h"

#include <cstdio>
#include <mutex>

#include <spdlog/sinks/stdout_color_sinks.h>
#include <spdlog/spdlog.h>

namespace switchyard {
namespace {

spdlog::logger& logger() {
  static const auto instance = [] {
    auto made = spdlog::stderr_color_mt("switchyard");
    made->set_pattern("%v");
    return made;
  }();
  return *instance;
}

struct StatusLine {
  std::mutex mutex;
  std::string text;
};

StatusLine& status_line() {
  static StatusLine instance;
  return instance;
}

void erase_line() {
  std::fputs("\r\x1b[K", stderr);
}

// Above the status line, which is drawn again.
void write(spdlog::level::level_enum level, const std::string& text) {
  StatusLine& status = status_line();
  const std::lock_guard lock(status.mutex);
  if (!status.text.empty()) {
    erase_line();
  }
  logger().log(level, "{}", text);
  std::fputs(status.text.c_str(), stderr);
}

}  // namespace

void log_line(const std::string& text) {
  write(spdlog::level::info, text);
}
void log_warning(const std::string& text) {
  write(spdlog::level::warn, "warning: " + text);
}

void set_status_line(const std::string& text) {
  StatusLine& status = status_line();
  const std::lock_guard lock(status.mutex);
  if (!status.text.empty()) {
    erase_line();
  }
  status.text = text;
  std::fputs(text.c_str(), stderr);
}

}  // namespace switchyard
