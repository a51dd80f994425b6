#pragma once

#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <thread>

#include "parallel/transport.h"
#include "parallel/whereabouts.h"

namespace switchyard {

// Leaves a note of where this rank is, four times in a timeout, from a thread of its own: also
// while the rank's thread is stuck, so that those who wait for it in vain can say where.
class Watchman {
 public:
  // Both must outlive it.
  Watchman(Transport& transport, const Whereabouts& whereabouts);
  ~Watchman();
  Watchman(const Watchman&) = delete;
  Watchman& operator=(const Watchman&) = delete;

 private:
  void watch();

  Transport& transport_;
  const Whereabouts& whereabouts_;
  std::mutex mutex_;
  std::condition_variable ends_;
  bool is_over_ = false;
  std::thread thread_;
};

}  // namespace switchyard
