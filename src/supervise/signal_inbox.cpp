#include "supervise/signal_inbox.h"

#include <cerrno>
#include <cstring>

#include <sys/signalfd.h>
#include <unistd.h>

#include "base/error.h"

namespace switchyard {

SignalInbox::SignalInbox() {
  sigset_t wanted;
  sigemptyset(&wanted);
  for (const int number : {SIGTERM, SIGINT, SIGCHLD}) {
    sigaddset(&wanted, number);
  }
  struct sigaction hangup = {};
  sigaction(SIGHUP, nullptr, &hangup);
  if (hangup.sa_handler != SIG_IGN) {
    sigaddset(&wanted, SIGHUP);
  }
  pthread_sigmask(SIG_BLOCK, &wanted, &previous_);
  descriptor_ = signalfd(-1, &wanted, SFD_CLOEXEC | SFD_NONBLOCK);
  check<FileError>(descriptor_ >= 0, "cannot wait for signals: {}", std::strerror(errno));
}

SignalInbox::~SignalInbox() {
  close(descriptor_);
  pthread_sigmask(SIG_SETMASK, &previous_, nullptr);
}

std::optional<int> SignalInbox::take() {
  signalfd_siginfo information{};
  return read(descriptor_, &information, sizeof(information)) == sizeof(information)
             ? std::optional(static_cast<int>(information.ssi_signo))
             : std::nullopt;
}

}  // namespace switchyard
