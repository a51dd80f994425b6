#include "train/progress.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <iterator>
#include <string_view>
#include <utility>

#include <sys/ioctl.h>
#include <unistd.h>

#include "base/log.h"

namespace switchyard {
namespace {

constexpr double kRedrawInterval = 0.1;  // seconds
constexpr double kLongestSilence = 30;   // seconds
constexpr double kHalfLife = 30;         // seconds
constexpr double kHalfLifeShare = 0.1;   // of the time so far
constexpr int64_t kAnyWidth = 1 << 20;

int64_t columns_of_standard_error() {
  winsize size{};
  constexpr int64_t kUsual = 80;
  return ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : kUsual;
}

// The load with the largest max over mean, of the layers that have one.
std::optional<ExpertLoad> worst_of(const std::vector<ExpertLoad>& loads) {
  std::optional<ExpertLoad> worst;
  for (const ExpertLoad& load : loads) {
    const auto value = load.max_over_mean().value();
    if (value && (!worst || *value > *worst->max_over_mean().value())) {
      worst = load;
    }
  }
  return worst;
}

std::string join(const std::vector<std::string>& parts) {
  std::string line;
  for (const std::string& part : parts) {
    line += part.empty() || line.empty() ? part : " | " + part;
  }
  return line;
}

}  // namespace

std::string format_duration(double seconds) {
  // Where the caller's estimate is senseless, so would be any number.
  if (!std::isfinite(seconds) || seconds < 0 || seconds > 1e10) {
    return "unknown";
  }
  const auto total = static_cast<int64_t>(std::llround(seconds));
  constexpr int64_t kMinute = 60;
  constexpr int64_t kHour = 60 * kMinute;
  constexpr int64_t kDay = 24 * kHour;
  if (total < kMinute) {
    return fmt::format("{}s", total);
  }
  if (total < kHour) {
    return fmt::format("{}m{:02}s", total / kMinute, total % kMinute);
  }
  if (total < kDay) {
    return fmt::format("{}h{:02}m", total / kHour, total % kHour / kMinute);
  }
  return fmt::format("{}d{:02}h", total / kDay, total % kDay / kHour);
}

std::string format_count(double count) {
  constexpr std::string_view kUnits[] = {"", "k", "M", "G", "T"};
  size_t unit = 0;
  // From here on a value would be shown as 1000 of its unit.
  while (count >= 999.5 && unit + 1 < std::size(kUnits)) {
    count /= 1000;
    ++unit;
  }
  return unit == 0 ? fmt::format("{:.0f}", count) : fmt::format("{:.3g}{}", count, kUnits[unit]);
}

std::string format_progress(const Progress& progress, int64_t width) {
  enum Part : size_t { kStep, kLoss, kSkipped, kSpeed, kTimeLeft, kLoad };
  std::vector<std::string> parts = {
      progress.total_steps > 0 ? fmt::format("step {}/{}", progress.step, progress.total_steps)
                               : fmt::format("step {}", progress.step),
      progress.loss ? fmt::format("loss {:.4f}", *progress.loss) : "loss none",
      progress.skipped_steps > 0 ? fmt::format("{} skipped", progress.skipped_steps) : "",
      progress.tokens_per_s ? format_count(*progress.tokens_per_s) + " tokens/s" : "",
      progress.seconds_left ? format_duration(*progress.seconds_left) + " left" : "",
      ""};
  // What takes a part's place while the line is too long.
  std::vector<std::pair<Part, std::string>> shortenings = {
      {kSpeed, ""}, {kTimeLeft, ""}, {kSkipped, ""}, {kLoss, ""}};
  if (progress.worst_load) {
    const double max_over_mean = *progress.worst_load->max_over_mean().value();
    parts[kLoad] =
        fmt::format("busiest expert {:.2f}x (layer {})", max_over_mean, progress.worst_load->layer);
    shortenings.insert(shortenings.begin(),
                       {{kLoad, fmt::format("expert max {:.2f}x", max_over_mean)}, {kLoad, ""}});
  }
  const auto limit = static_cast<size_t>(std::max<int64_t>(width, 0));
  for (const auto& [part, shorter] : shortenings) {
    if (join(parts).size() <= limit) {
      break;
    }
    parts[part] = shorter;
  }
  return join(parts).substr(0, limit);
}

void SpeedEstimate::add_step(double now_s, int64_t tokens) {
  const double half_life = std::max(kHalfLife, kHalfLifeShare * (now_s - start_s_));
  const double keep = std::exp2(-(now_s - last_s_) / half_life);
  steps_ = steps_ * keep + 1;
  tokens_ = tokens_ * keep + static_cast<double>(tokens);
  seconds_ = seconds_ * keep + (now_s - last_s_);
  last_s_ = now_s;
}

std::optional<double> SpeedEstimate::steps_per_s() const {
  return Ratio{steps_, seconds_}.value();
}

std::optional<double> SpeedEstimate::tokens_per_s() const {
  return Ratio{tokens_, seconds_}.value();
}

ProgressScreen ProgressScreen::standard_error() {
  const char* term = std::getenv("TERM");
  ProgressScreen screen;
  screen.is_terminal =
      isatty(STDERR_FILENO) == 1 && term != nullptr && std::string_view(term) != "dumb";
  screen.width = columns_of_standard_error;
  screen.redraw = set_status_line;
  screen.add_line = log_line;
  return screen;
}

ProgressLine::ProgressLine(ProgressScreen screen, const Limits& limits, double now_s)
    : screen_(std::move(screen)),
      limits_(limits),
      speed_(now_s),
      start_s_(now_s),
      shown_s_(now_s) {}

ProgressLine::~ProgressLine() {
  if (screen_.is_terminal) {
    screen_.redraw("");
  }
}

std::optional<double> ProgressLine::seconds_left(int64_t step, double now_s) const {
  std::optional<double> left;
  const auto speed = speed_.steps_per_s();
  if (limits_.total_steps > 0 && speed) {
    left = static_cast<double>(limits_.total_steps - step) / *speed;
  }
  if (limits_.time_limit_s > 0) {
    const double until_limit =
        std::max(0.0, limits_.time_limit_s - limits_.time_spent_s - (now_s - start_s_));
    left = std::min(left.value_or(until_limit), until_limit);
  }
  return left;
}

bool ProgressLine::is_due(int64_t step, double now_s) const {
  if (!has_shown_ || step == limits_.total_steps) {
    return true;
  }
  const double silence = now_s - shown_s_;
  return screen_.is_terminal ? silence >= kRedrawInterval
                             : step % limits_.log_every == 0 || silence >= kLongestSilence;
}

void ProgressLine::add_evaluation(int64_t step, const Ratio& loss) const {
  screen_.add_line(fmt::format("evaluation after step {}: loss {:.4f} over {:.0f} tokens", step,
                               loss.value().value_or(std::nan("")), loss.denominator));
}

void ProgressLine::update(const StepMetrics& metrics, double now_s) {
  speed_.add_step(now_s, metrics.tokens);
  latest_.step = metrics.step;
  latest_.total_steps = limits_.total_steps;
  latest_.loss = metrics.loss.value();
  latest_.tokens_per_s = speed_.tokens_per_s();
  latest_.seconds_left = seconds_left(metrics.step, now_s);
  latest_.skipped_steps = metrics.skipped_steps;
  latest_.worst_load = worst_of(metrics.expert_load);
  if (metrics.eval_loss && metrics.step != limits_.total_steps) {
    add_evaluation(metrics.step, *metrics.eval_loss);
  }
  is_shown_ = is_due(metrics.step, now_s);
  if (!is_shown_) {
    return;
  }
  shown_s_ = now_s;
  has_shown_ = true;
  if (screen_.is_terminal) {
    // A line that fills the last column wraps on some terminals.
    screen_.redraw(format_progress(latest_, screen_.width() - 1));
  } else {
    screen_.add_line(format_progress(latest_, kAnyWidth));
  }
}

void ProgressLine::finish() {
  if (screen_.is_terminal) {
    screen_.redraw("");
  }
  if (has_shown_ && (screen_.is_terminal || !is_shown_)) {
    screen_.add_line(format_progress(latest_, kAnyWidth));
  }
}

}  // namespace switchyard
