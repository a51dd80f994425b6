#pragma once

#include <csignal>
#include <optional>

namespace switchyard {

// While alive, SIGTERM, SIGINT, SIGHUP (unless it is ignored, as under nohup) and SIGCHLD do not
// act but wait here to be taken, one at a time, so
// that an event loop can sleep until one comes. Threads made after it inherit that: make it first.
// One at a time.
class SignalInbox {
 public:
  SignalInbox();
  ~SignalInbox();  // those not taken act now
  SignalInbox(const SignalInbox&) = delete;
  SignalInbox& operator=(const SignalInbox&) = delete;

  int descriptor() const { return descriptor_; }  // readable when a signal waits
  std::optional<int> take();

 private:
  sigset_t previous_ = {};
  int descriptor_ = -1;
};

}  // namespace switchyard
