#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <future>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "parallel/ledger.h"
#include "parallel/transport.h"

namespace switchyard {

// Who is in a group, seen from one of its ranks.
struct GroupMembers {
  std::string name;            // "tp"
  int64_t id = 0;              // below 15; tells apart groups that have two ranks in common
  std::vector<int64_t> ranks;  // in the world, rising
  int64_t own = 0;             // index of this rank in `ranks`
  std::string whoami;          // "rank 5: tp 1 dp 0"
};

// What a member is about to call, for members to compare.
struct CallContent {
  at::ScalarType dtype = at::kByte;
  std::vector<int64_t> sizes = {};  // of the logical value; -1: may differ
  std::string detail = {};          // what else must be equal: "dim 1 by 3 4", "from 0"
  // Rows for and from each member, of which every pair must agree; empty where `sizes` says it all.
  std::vector<int64_t> sends = {};
  std::vector<int64_t> receives = {};
};

// One collective under way: its exchanges of parcels, what it sent and how long it took.
class Call {
 public:
  // Numbers its exchanges, the same on all that take part.
  struct FirstExchange {
    uint32_t number = 0;       // within the group or, from one member to another, between the two
    bool is_transfer = false;  // which of both
  };
  Call(const GroupMembers& members, Transport& transport, Ledger& ledger,
       std::string_view collective, const Site& site, FirstExchange first_exchange);

  // Compares what all members are about to call, and throws CommError on all of them when one
  // differs, saying who and in what. Makes kVerifyExchanges exchanges.
  void verify(const CallContent& content);
  static constexpr int64_t kVerifyExchanges = 2;

  // The same between two members, of which one sends and the other receives: what either is about
  // to do travels while they go on, and is compared by compare(). Makes kTransferExchanges
  // exchanges.
  struct Comparison {
    size_t other = 0;
    bool is_send = false;
    at::Tensor own_text = {};
    at::Tensor other_text = {};
    std::vector<std::shared_ptr<Transport::Exchange>> exchanges = {};
  };
  Comparison start_comparing(size_t other, bool is_send, const CallContent& content);
  void compare(const Comparison& comparison) const;
  static constexpr int64_t kTransferExchanges = 2;

  using Parts = std::vector<at::Tensor>;  // one per member; undefined, empty and own ones stay
  using Exchange = Transport::Exchange;

  // Starts to send sends[i] to member i, and to receive receives[i] from it. Throws CommError.
  std::unique_ptr<Exchange> start(const Parts& sends, const Parts& receives);
  void wait(Exchange& exchange) const;
  void run(const Parts& sends, const Parts& receives) { wait(*start(sends, receives)); }

  // Runs `work` and counts its time as this call's.
  template <class Work>
  void timed(const Work& work) {
    const Whereabouts::InCall here(ledger_.whereabouts(), place());
    const auto start = Clock::now();
    work();
    seconds_ += std::chrono::duration<double>(Clock::now() - start).count();
  }
  // Runs `work` from now on, on a thread of its own.
  void start_in_background(std::function<void()> work);
  // Returns when that has ended, or throws what it threw. What it took until now counts as hidden,
  // without the time in which this rank waited for other calls.
  void finish_in_background();
  // Writes the ledger.
  void record() const;

 private:
  using Clock = std::chrono::steady_clock;

  std::vector<Parcel> parcels(const Parts& parts, std::string_view topic) const;
  std::unique_ptr<Exchange> start(const Parts& sends, const Parts& receives,
                                  std::string_view topic);
  std::vector<std::string> exchange_texts(const std::string& own);
  void verify_rows(const CallContent& content);
  std::string topic() const;
  std::string describe(const CallContent& content) const;
  Whereabouts::Place place() const;
  std::string silence_of(int64_t rank, std::vector<int64_t>& asked) const;
  [[noreturn]] void report(const PeerLost& lost) const;

  const GroupMembers& members_;
  Transport& transport_;
  Ledger& ledger_;
  std::string_view collective_;
  Site site_;
  RunPosition position_;
  FirstExchange next_exchange_;
  int64_t bytes_ = 0;
  double seconds_ = 0;
  double hidden_seconds_ = 0;
  // In the background: when it began, what the ledger's seconds were then, and when it ended.
  Clock::time_point began_;
  double waited_before_ = 0;
  std::future<Clock::time_point> ended_;
};

}  // namespace switchyard
