#include "parallel/slow_link.h"

#include <algorithm>
#include <condition_variable>
#include <deque>
#include <future>
#include <mutex>
#include <thread>
#include <utility>

namespace switchyard {
namespace {

using Clock = std::chrono::steady_clock;
using Exchange = Transport::Exchange;

Clock::duration seconds(double value) {
  return std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(value));
}

int64_t bytes_of(const std::vector<Parcel>& parcels) {
  int64_t bytes = 0;
  for (const Parcel& parcel : parcels) {
    bytes += static_cast<int64_t>(parcel.tensor.nbytes());
  }
  return bytes;
}

// Receives under way, and sends that leave later.
class SlowExchange : public Exchange {
 public:
  SlowExchange(std::unique_ptr<Exchange> receives, std::future<std::unique_ptr<Exchange>> sends)
      : receives_(std::move(receives)), sends_(std::move(sends)) {}

  void wait() override {
    receives_->wait();
    if (sends_.valid()) {
      sends_.get()->wait();
    }
  }

 private:
  std::unique_ptr<Exchange> receives_;
  std::future<std::unique_ptr<Exchange>> sends_;
};

class SlowLink : public Transport {
 public:
  SlowLink(std::shared_ptr<Transport> transport, const LinkSpeed& speed)
      : transport_(std::move(transport)), speed_(speed), thread_([this] { serve(); }) {}

  ~SlowLink() override {
    {
      const std::lock_guard lock(mutex_);
      is_over_ = true;
      changed_.notify_all();
    }
    thread_.join();
  }

  std::unique_ptr<Exchange> exchange(const std::vector<Parcel>& sends,
                                     const std::vector<Parcel>& receives) override {
    std::future<std::unique_ptr<Exchange>> leaving;
    if (!sends.empty()) {
      const std::lock_guard lock(mutex_);
      const double transfer_s =
          speed_.bytes_per_s > 0 ? static_cast<double>(bytes_of(sends)) / speed_.bytes_per_s : 0;
      free_at_ = std::max(free_at_, Clock::now()) + seconds(transfer_s);
      waiting_.push_back({free_at_ + seconds(speed_.latency_s), sends, {}});
      leaving = waiting_.back().exchange.get_future();
      changed_.notify_all();
    }
    return std::make_unique<SlowExchange>(transport_->exchange({}, receives), std::move(leaving));
  }

  std::chrono::milliseconds timeout() const override { return transport_->timeout(); }

  std::vector<std::string> last_words(const std::string& own,
                                      const std::vector<int64_t>& peers) override {
    return transport_->last_words(own, peers);
  }
  void leave_note(const std::string& note) override { transport_->leave_note(note); }
  std::vector<std::string> notes(const std::vector<int64_t>& peers) override {
    return transport_->notes(peers);
  }

 private:
  struct Departure {
    Clock::time_point at;
    std::vector<Parcel> sends;
    std::promise<std::unique_ptr<Exchange>> exchange;
  };

  void serve() {
    std::unique_lock lock(mutex_);
    while (true) {
      changed_.wait(lock, [&] { return !waiting_.empty() || is_over_; });
      if (waiting_.empty()) {
        return;
      }
      Departure departure = std::move(waiting_.front());
      waiting_.pop_front();
      lock.unlock();
      std::this_thread::sleep_until(departure.at);
      try {
        departure.exchange.set_value(transport_->exchange(departure.sends, {}));
      } catch (...) {
        departure.exchange.set_exception(std::current_exception());
      }
      lock.lock();
    }
  }

  std::shared_ptr<Transport> transport_;
  LinkSpeed speed_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Departure> waiting_;  // in the order in which they leave
  Clock::time_point free_at_;      // when the link has sent all that was handed to it
  bool is_over_ = false;
  std::thread thread_;  // last: it uses the others
};

}  // namespace

std::shared_ptr<Transport> make_slow_link(std::shared_ptr<Transport> transport,
                                          const LinkSpeed& speed) {
  return std::make_shared<SlowLink>(std::move(transport), speed);
}

}  // namespace switchyard
