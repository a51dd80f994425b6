#pragma once

#include <condition_variable>
#include <exception>
#include <functional>
#include <mutex>
#include <thread>

#include "parallel/ledger.h"

namespace switchyard {

// Two computations of one rank that take turns, so that what one of them sends travels while the
// other computes. Each runs until it gives way; only one runs at a time. Whose turn it is follows
// from their calls of give_way() alone and never from timing: ranks whose computations make the
// same calls make them in the same order, and the results have the bits of one computation after
// the other, as long as neither reads what the other writes.
class Turns {
 public:
  // `ledger` must outlive it: each computation has its own position in the run.
  explicit Turns(Ledger& ledger) : ledger_(ledger) {}
  ~Turns();
  Turns(const Turns&) = delete;
  Turns& operator=(const Turns&) = delete;

  // Runs both to their ends: `first`, on a thread of its own, until it gives way, then `second`, on
  // this thread, and so on. When one throws, the other is unwound at its next turn; then throws
  // what that one threw. libtorch's state of this thread (whether gradients are recorded, the
  // number of threads) is that of both.
  void run(const std::function<void()>& first, const std::function<void()>& second);

  // Whether the caller takes turns with another computation that has not ended.
  static bool are_taken();
  // Lets the other computation have its turn, and returns when it gives way or has ended. Returns
  // at once where no turns are taken.
  static void give_way();

 private:
  enum Player { kFirst = 0, kSecond = 1 };
  struct Unwound;  // thrown in one computation because the other has thrown

  static Player other(Player player) { return player == kFirst ? kSecond : kFirst; }
  void play(Player player, const std::function<void()>& work);
  void wait_for_turn(std::unique_lock<std::mutex>& lock, Player player);
  void pass_turn(std::unique_lock<std::mutex>& lock, Player player);
  void give_way(Player player);
  void serve();  // the thread of `first`

  Ledger& ledger_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::thread thread_;           // from the first run() on
  std::function<void()> first_;  // what it is to run; null while there is nothing
  bool is_over_ = false;         // there will be no more
  Player turn_ = kSecond;
  bool has_ended_[2] = {true, true};
  RunPosition positions_[2];
  std::exception_ptr error_;  // of whoever threw first

  static thread_local Turns* taken_;
  static thread_local Player player_;
};

}  // namespace switchyard
