#include "train/stop_signal.h"

#include <array>
#include <csignal>

namespace switchyard {
namespace {

volatile std::sig_atomic_t received = 0;
std::array<struct sigaction, 2> previous;
constexpr std::array<int, 2> kSignals = {SIGTERM, SIGINT};

void remember(int signal) {
  if (signal == SIGINT && received == SIGINT) {
    std::signal(SIGINT, SIG_DFL);
    std::raise(SIGINT);
  }
  received = signal;
}

}  // namespace

StopSignal::StopSignal() {
  received = 0;
  struct sigaction action = {};
  action.sa_handler = remember;
  action.sa_flags = SA_RESTART;
  for (size_t i = 0; i < kSignals.size(); ++i) {
    sigaction(kSignals[i], &action, &previous[i]);
  }
}

StopSignal::~StopSignal() {
  for (size_t i = 0; i < kSignals.size(); ++i) {
    sigaction(kSignals[i], &previous[i], nullptr);
  }
}

bool StopSignal::is_set() const {
  return received != 0;
}

}  // namespace switchyard
