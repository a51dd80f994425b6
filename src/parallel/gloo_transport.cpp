#include "parallel/gloo_transport.h"

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <exception>
#include <functional>
#include <mutex>
#include <thread>
#include <utility>

#include <sched.h>

#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>

#include "base/error.h"
#include "parallel/no_warnings.h"

namespace switchyard {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr milliseconds kLastWordsTime{500};
constexpr milliseconds kLastWordsPoll{10};
constexpr int kHangUpSlot = 15 << 27;  // of no group

// While it lives, new threads of this one do not push others off the processor when they wake up.
// Gloo's network thread does so while its own caller holds a lock that it then spins on until the
// next timer tick: measured with 4 ranks on 2 cores, an exchange of 1 KB takes 4 ms instead of 0.3.
// Where the system refuses, it is slower.
class PoliteThreads {
 public:
  PoliteThreads() : previous_(sched_getscheduler(0)) { set(SCHED_BATCH); }
  ~PoliteThreads() { set(previous_); }
  PoliteThreads(const PoliteThreads&) = delete;
  PoliteThreads& operator=(const PoliteThreads&) = delete;

 private:
  void set(int policy) const {
    if (previous_ == SCHED_OTHER) {
      const sched_param parameters{};
      sched_setscheduler(0, policy, &parameters);
    }
  }
  int previous_;
};

std::shared_ptr<gloo::transport::Device> make_device(const std::string& host) {
  const PoliteThreads polite;
  return host.empty() ? c10d::ProcessGroupGloo::createDefaultDevice()
                      : c10d::ProcessGroupGloo::createDeviceForHostname(host);
}

// Runs `work` on a thread of its own; whether it ended well in time: a store whose server is
// stopped answers nothing and has no timeout of its own.
bool run_within(milliseconds time, std::function<void()> work) {
  struct State {
    std::mutex mutex;
    std::condition_variable ended;
    bool has_ended = false;
    bool is_done = false;
  };
  const auto state = std::make_shared<State>();
  std::thread([state, work = std::move(work)] {
    bool is_done = true;
    try {
      const NoWarnings no_warnings;
      work();
    } catch (const std::exception&) {
      is_done = false;
    }
    const std::lock_guard lock(state->mutex);
    state->has_ended = true;
    state->is_done = is_done;
    state->ended.notify_all();
  }).detach();
  std::unique_lock lock(state->mutex);
  state->ended.wait_for(lock, time, [&] { return state->has_ended; });
  return state->is_done;
}

struct Flight {
  int64_t peer;
  c10::intrusive_ptr<c10d::Work> work;
};

class GlooExchange : public Transport::Exchange {
 public:
  GlooExchange(std::vector<Flight> flights, milliseconds timeout)
      : flights_(std::move(flights)), timeout_(timeout) {}

  void wait() override {
    const auto deadline = Clock::now() + timeout_;
    for (const Flight& flight : flights_) {
      // Rounded up, so that who runs out of it is past the deadline; c10d takes zero for "no
      // timeout".
      const auto left =
          std::max(std::chrono::ceil<milliseconds>(deadline - Clock::now()), milliseconds(1));
      try {
        flight.work->wait(left);
      } catch (const std::exception& error) {
        throw PeerLost(flight.peer, Clock::now() >= deadline, error.what());
      }
    }
  }

 private:
  std::vector<Flight> flights_;
  milliseconds timeout_;
};

class GlooTransport : public Transport {
 public:
  GlooTransport(const c10::intrusive_ptr<c10d::Store>& store, int64_t rank, int64_t size,
                const std::string& host, milliseconds timeout)
      : rank_(rank), timeout_(timeout), store_(store) {
    auto options = c10d::ProcessGroupGloo::Options::create(timeout);
    options->threads = 1;  // for collectives of its own, which we do not use
    options->devices.push_back(make_device(host));
    try {
      gloo_ = c10::make_intrusive<c10d::ProcessGroupGloo>(
          c10::make_intrusive<c10d::PrefixStore>("gloo", store), static_cast<int>(rank),
          static_cast<int>(size), options);
    } catch (const std::exception& error) {
      store_->set(kMet, fmt::format("rank {} could not connect: {}", rank, error.what()));
      throw;
    }
    wait_until_all_connected(size);
  }

  ~GlooTransport() override {
    if (std::uncaught_exceptions() > 0 && !has_spoken_) {
      last_words("left after an error of its own", {});
    }
  }

  std::unique_ptr<Exchange> exchange(const std::vector<Parcel>& sends,
                                     const std::vector<Parcel>& receives) override {
    std::vector<Flight> flights;
    const std::lock_guard lock(mutex_);
    // Sends first: they only announce themselves, and the network thread moves the data when the
    // peer is ready. The other way round this thread would, contending for the connection's lock.
    for (const Parcel& parcel : sends) {
      start(flights, parcel, [&](std::vector<at::Tensor>& tensors) {
        return gloo_->send(tensors, static_cast<int>(parcel.peer), static_cast<int>(parcel.slot));
      });
    }
    for (const Parcel& parcel : receives) {
      start(flights, parcel, [&](std::vector<at::Tensor>& tensors) {
        return gloo_->recv(tensors, static_cast<int>(parcel.peer), static_cast<int>(parcel.slot));
      });
    }
    return std::make_unique<GlooExchange>(std::move(flights), timeout_);
  }

  milliseconds timeout() const override { return timeout_; }

  std::vector<std::string> last_words(const std::string& own,
                                      const std::vector<int64_t>& peers) override {
    has_spoken_ = true;
    const auto words = std::make_shared<std::vector<std::string>>();
    const auto ask = [words, own, peers, store = store_, gloo = gloo_, rank = rank_] {
      // With rank 0 goes the store: it stays until the others have asked.
      const auto deadline = Clock::now() + (rank == 0 ? 2 : 1) * kLastWordsTime;
      store->set(key(rank), own);
      hang_up(*gloo, rank);
      std::vector<std::string> heard;
      for (const int64_t peer : peers) {
        while (peer != rank && !store->check({key(peer)}) && Clock::now() < deadline) {
          std::this_thread::sleep_for(kLastWordsPoll);
        }
        const bool has_spoken = peer != rank && store->check({key(peer)});
        heard.push_back(has_spoken ? store->get_to_str(key(peer)) : "");
      }
      *words = std::move(heard);
    };
    return run_within(3 * kLastWordsTime, ask) ? *words : std::vector<std::string>();
  }

  void leave_note(const std::string& note) override {
    if (!has_lost_store_) {
      const auto write = [note, store = store_, rank = rank_] { store->set(note_key(rank), note); };
      has_lost_store_ = !run_within(kLastWordsTime, write);
    }
  }

  std::vector<std::string> notes(const std::vector<int64_t>& peers) override {
    const auto notes = std::make_shared<std::vector<std::string>>();
    const auto ask = [notes, peers, store = store_] {
      std::vector<std::string> found;
      for (const int64_t peer : peers) {
        const bool has_note = store->check({note_key(peer)});
        found.push_back(has_note ? store->get_to_str(note_key(peer)) : "");
      }
      *notes = std::move(found);
    };
    return run_within(kLastWordsTime, ask) ? *notes : std::vector<std::string>();
  }

 private:
  // A rank is connected to a peer before the peer has noticed; if it had nothing to say and left
  // now, the peer would fail to connect.
  void wait_until_all_connected(int64_t size) {
    if (store_->add("num_connected", 1) == size) {
      store_->set(kMet, kAllConnected);
    }
    const std::string outcome = store_->get_to_str(kMet);
    check<CommError>(outcome == kAllConnected, "{}", outcome);
    // Rank 0 may hold the store: it stays until the others have read it.
    if (store_->add("num_met", 1) == size) {
      store_->set("all_met", kAllConnected);
    }
    if (rank_ == 0) {
      store_->wait({"all_met"});
    }
  }

  static constexpr const char* kMet = "met";
  static constexpr const char* kAllConnected = "all connected";

  static std::string key(int64_t rank) { return "last_words/" + std::to_string(rank); }
  static std::string note_key(int64_t rank) { return "note/" + std::to_string(rank); }

  // Closes all connections, so that who waits for this rank learns of it now. c10d has no call for
  // it, but a wait that times out does it.
  static void hang_up(c10d::ProcessGroupGloo& gloo, int64_t rank) {
    for (int peer = 0; peer < gloo.getSize(); ++peer) {
      if (peer == rank) {
        continue;
      }
      try {
        std::vector<at::Tensor> nothing{at::empty({1}, at::kByte)};
        gloo.recv(nothing, peer, kHangUpSlot)->wait(milliseconds(1));
      } catch (const std::exception&) {  // as intended, or closed already
      }
    }
  }

  template <class Start>
  static void start(std::vector<Flight>& flights, const Parcel& parcel, const Start& begin) {
    std::vector<at::Tensor> tensors{parcel.tensor};
    try {
      flights.push_back({parcel.peer, begin(tensors)});
    } catch (const std::exception& error) {
      throw PeerLost(parcel.peer, false, error.what());
    }
  }

  int64_t rank_;
  milliseconds timeout_;
  c10::intrusive_ptr<c10d::Store> store_;
  c10::intrusive_ptr<c10d::ProcessGroupGloo> gloo_;
  std::mutex mutex_;
  std::atomic<bool> has_spoken_ = false;
  std::atomic<bool> has_lost_store_ = false;
};

}  // namespace

std::shared_ptr<Transport> make_gloo_transport(const c10::intrusive_ptr<c10d::Store>& store,
                                               int64_t rank, int64_t size, const std::string& host,
                                               milliseconds timeout) {
  return std::make_shared<GlooTransport>(store, rank, size, host, timeout);
}

}  // namespace switchyard
