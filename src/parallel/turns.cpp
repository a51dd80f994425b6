#include "parallel/turns.h"

#include <utility>

#include <ATen/Parallel.h>
#include <ATen/ThreadLocalState.h>

namespace switchyard {

// Of the standard's kind: autograd's engine cleans up after no other.
struct Turns::Unwound : std::exception {};

thread_local Turns* Turns::taken_ = nullptr;
thread_local Turns::Player Turns::player_ = Turns::kSecond;

Turns::~Turns() {
  {
    const std::lock_guard lock(mutex_);
    is_over_ = true;
    changed_.notify_all();
  }
  if (thread_.joinable()) {
    thread_.join();
  }
}

void Turns::run(const std::function<void()>& first, const std::function<void()>& second) {
  const RunPosition position = ledger_.position();
  {
    const std::lock_guard lock(mutex_);
    first_ = [this, &first, state = at::ThreadLocalState(), threads = at::get_num_threads()] {
      const at::ThreadLocalStateGuard same_state(state);
      if (at::get_num_threads() != threads) {
        at::set_num_threads(threads);
      }
      play(kFirst, first);
    };
    positions_[kFirst] = positions_[kSecond] = position;
    has_ended_[kFirst] = has_ended_[kSecond] = false;
    error_ = nullptr;
    turn_ = kFirst;
    if (!thread_.joinable()) {
      thread_ = std::thread([this] { serve(); });
    }
    changed_.notify_all();
  }
  play(kSecond, second);
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return has_ended_[kFirst]; });
  ledger_.position() = position;
  if (error_ != nullptr) {
    std::rethrow_exception(std::exchange(error_, nullptr));
  }
}

void Turns::serve() {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [&] { return first_ != nullptr || is_over_; });
    if (is_over_) {
      return;
    }
    const auto work = std::exchange(first_, nullptr);
    lock.unlock();
    work();
    lock.lock();
  }
}

// One computation from its first turn to its end.
void Turns::play(Player player, const std::function<void()>& work) {
  Turns* const outer = std::exchange(taken_, this);
  const Player outer_player = std::exchange(player_, player);
  std::exception_ptr error;
  try {
    {
      std::unique_lock lock(mutex_);
      wait_for_turn(lock, player);
    }
    work();
  } catch (...) {
    error = std::current_exception();
  }
  taken_ = outer;
  player_ = outer_player;
  std::unique_lock lock(mutex_);
  error_ = error_ == nullptr ? error : error_;
  has_ended_[player] = true;
  pass_turn(lock, player);
}

void Turns::wait_for_turn(std::unique_lock<std::mutex>& lock, Player player) {
  changed_.wait(lock, [&] { return turn_ == player; });
  ledger_.position() = positions_[player];
  if (error_ != nullptr) {
    throw Unwound{};
  }
}

void Turns::pass_turn(std::unique_lock<std::mutex>&, Player player) {
  positions_[player] = ledger_.position();
  turn_ = other(player);
  changed_.notify_all();
}

void Turns::give_way(Player player) {
  std::unique_lock lock(mutex_);
  if (!has_ended_[other(player)]) {
    pass_turn(lock, player);
    wait_for_turn(lock, player);
  }
}

bool Turns::are_taken() {
  if (taken_ == nullptr) {
    return false;
  }
  const std::lock_guard lock(taken_->mutex_);
  return !taken_->has_ended_[other(player_)];
}

void Turns::give_way() {
  if (taken_ != nullptr) {
    taken_->give_way(player_);
  }
}

}  // namespace switchyard
