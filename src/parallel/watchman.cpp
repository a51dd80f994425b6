#include "parallel/watchman.h"

#include <array>
#include <ctime>

#include <fmt/format.h>

namespace switchyard {
namespace {

constexpr int kNotesPerTimeout = 4;

std::string time_of_day() {
  const std::time_t now = std::time(nullptr);
  std::tm utc{};
  gmtime_r(&now, &utc);
  std::array<char, 16> text{};
  std::strftime(text.data(), text.size(), "%H:%M:%S UTC", &utc);
  return text.data();
}

}  // namespace

Watchman::Watchman(Transport& transport, const Whereabouts& whereabouts)
    : transport_(transport), whereabouts_(whereabouts), thread_([this] { watch(); }) {}

Watchman::~Watchman() {
  {
    const std::lock_guard lock(mutex_);
    is_over_ = true;
  }
  ends_.notify_all();
  thread_.join();
}

void Watchman::watch() {
  const auto period = transport_.timeout() / kNotesPerTimeout;
  std::unique_lock lock(mutex_);
  while (!ends_.wait_for(lock, period, [this] { return is_over_; })) {
    lock.unlock();
    Note note = whereabouts_.note();
    note.text += fmt::format(" at {}", time_of_day());
    transport_.leave_note(note.encoded());
    lock.lock();
  }
}

}  // namespace switchyard
