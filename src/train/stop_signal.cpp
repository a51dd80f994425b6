#include "train/stop_signal.h"

#include <array>
#include <csignal>

namespace switchyard {
namespace {

volatile std::sig_atomic_t received = 0;
constexpr std::array<int, 3> kSignals = {SIGTERM, SIGINT, SIGHUP};
std::array<struct sigaction, kSignals.size()> previous;

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
    if (kSignals[i] == SIGHUP && previous[i].sa_handler == SIG_IGN) {
      sigaction(SIGHUP, &previous[i], nullptr);
    }
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
