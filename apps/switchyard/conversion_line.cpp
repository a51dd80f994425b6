#include "conversion_line.h"

#include <chrono>

#include <fmt/format.h>

namespace switchyard {
namespace {

double now_s() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

}  // namespace

ConversionLine::ConversionLine() : start_s_(now_s()), shown_s_(start_s_) {}

void ConversionLine::update(const ConversionProgress& progress) {
  const double now = now_s();
  constexpr double kRedrawS = 0.1;
  if (!screen_.is_terminal || now - shown_s_ < kRedrawS) {
    return;
  }
  shown_s_ = now;
  const auto bytes = static_cast<double>(progress.bytes_done);
  const double bytes_per_s = bytes / (now - start_s_);
  const double left = (static_cast<double>(progress.num_bytes) - bytes) / bytes_per_s;
  screen_.redraw(fmt::format("{}/{} tensors | {}B | {}B/s | {} left", progress.tensors_done,
                             progress.num_tensors, format_count(bytes), format_count(bytes_per_s),
                             format_duration(left)));
}

void ConversionLine::finish() {
  if (screen_.is_terminal) {
    screen_.redraw("");
  }
}

}  // namespace switchyard
