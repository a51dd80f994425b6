#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

namespace switchyard {

// Work on a stream of inputs by several threads, whose outputs come out in the order of the inputs
// whatever the number of threads. `produce` runs on a thread of its own until it returns nothing,
// `work` on `num_threads`, `consume` on the caller's. Inputs and outputs that are under way weigh
// at most `max_weight` in all, or are a single one.
//
// An exception of `produce` or `work` is thrown here when its turn has come: the first in order,
// after everything before it was consumed.
template <class Input, class Output>
class OrderedPipeline {
 public:
  struct Stages {
    std::function<std::optional<Input>()> produce;
    std::function<int64_t(const Input&)> weigh;
    std::function<Output(Input)> work;
    std::function<void(Output)> consume;
  };

  static void run(Stages stages, int64_t num_threads, int64_t max_weight) {
    OrderedPipeline pipeline(std::move(stages), max_weight);
    std::vector<std::thread> threads;
    threads.emplace_back([&pipeline] { pipeline.produce_all(); });
    for (int64_t i = 0; i < num_threads; ++i) {
      threads.emplace_back([&pipeline] { pipeline.work_all(); });
    }
    std::exception_ptr failure;
    try {
      pipeline.consume_all();
    } catch (...) {
      failure = std::current_exception();
    }
    pipeline.stop();
    for (std::thread& thread : threads) {
      thread.join();
    }
    if (failure) {
      std::rethrow_exception(failure);
    }
  }

 private:
  struct Done {
    int64_t weight;
    std::optional<Output> output;
    std::exception_ptr failure;
  };

  OrderedPipeline(Stages stages, int64_t max_weight)
      : stages_(std::move(stages)), max_weight_(max_weight) {}

  void produce_all() {
    for (int64_t number = 0;; ++number) {
      std::optional<Input> input;
      std::exception_ptr failure;
      try {
        input = stages_.produce();
      } catch (...) {
        failure = std::current_exception();
      }
      std::unique_lock lock(mutex_);
      if (!input) {
        if (failure) {
          done_.emplace(number, Done{0, std::nullopt, failure});
          ++number;
        }
        num_inputs_ = number;
        changed_.notify_all();
        return;
      }
      const int64_t weight = stages_.weigh(*input);
      changed_.wait(lock,
                    [&] { return is_stopped_ || weight_ == 0 || weight_ + weight <= max_weight_; });
      if (is_stopped_) {
        return;
      }
      weight_ += weight;
      waiting_.emplace_back(number, weight, std::move(*input));
      changed_.notify_all();
    }
  }

  void work_all() {
    while (true) {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [&] { return is_stopped_ || num_inputs_ >= 0 || !waiting_.empty(); });
      if (is_stopped_ || waiting_.empty()) {
        return;
      }
      auto [number, weight, input] = std::move(waiting_.front());
      waiting_.pop_front();
      lock.unlock();
      Done done{weight, std::nullopt, nullptr};
      try {
        done.output = stages_.work(std::move(input));
      } catch (...) {
        done.failure = std::current_exception();
      }
      lock.lock();
      done_.emplace(number, std::move(done));
      changed_.notify_all();
    }
  }

  void consume_all() {
    for (int64_t number = 0;; ++number) {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [&] { return number == num_inputs_ || done_.count(number) > 0; });
      const auto found = done_.find(number);
      if (found == done_.end()) {
        return;
      }
      Done done = std::move(found->second);
      done_.erase(found);
      lock.unlock();
      if (done.failure) {
        std::rethrow_exception(done.failure);
      }
      stages_.consume(std::move(*done.output));
      lock.lock();
      weight_ -= done.weight;
      changed_.notify_all();
    }
  }

  void stop() {
    const std::lock_guard lock(mutex_);
    is_stopped_ = true;
    changed_.notify_all();
  }

  Stages stages_;
  const int64_t max_weight_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::tuple<int64_t, int64_t, Input>> waiting_;
  std::map<int64_t, Done> done_;
  int64_t weight_ = 0;       // of everything between produce and the end of consume
  int64_t num_inputs_ = -1;  // once it is known
  bool is_stopped_ = false;
};

}  // namespace switchyard
