#include "base/log.h"

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

}  // namespace

void log_line(const std::string& text) { logger().info("{}", text); }
void log_warning(const std::string& text) { logger().warn("warning: {}", text); }

}  // namespace switchyard
