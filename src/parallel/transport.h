#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

namespace switchyard {

// A tensor on its way to or from another rank. Contiguous, not empty.
struct Parcel {
  int64_t peer;   // rank in the world
  uint32_t slot;  // below 2^31; reaches the peer's parcel of the same slot, which has the same size
  at::Tensor tensor;
};

// A rank did not take part. Group turns it into a CommError that says in which call.
struct PeerLost : std::runtime_error {
  PeerLost(int64_t lost, bool timed_out, const std::string& what)
      : std::runtime_error(what), peer(lost), is_timeout(timed_out) {}
  int64_t peer;
  bool is_timeout;
};

// What all groups of a rank send through: one connection to each other rank, whatever the number of
// groups. Every collective is made of exchange(), so that the order of sums is ours.
class Transport {
 public:
  // Parcels under way.
  class Exchange {
   public:
    virtual ~Exchange() = default;
    // Returns when all parcels have arrived and all sent ones may be overwritten. Throws PeerLost.
    virtual void wait() = 0;
  };

  virtual ~Transport() = default;

  // Starts to send and to receive. Throws PeerLost. May be called by several threads.
  virtual std::unique_ptr<Exchange> exchange(const std::vector<Parcel>& sends,
                                             const std::vector<Parcel>& receives) = 0;

  // How long a peer may keep this rank waiting.
  virtual std::chrono::milliseconds timeout() const = 0;

  // For the report after a loss: tells the others where this rank stands, closes its connections
  // and returns what each of `peers` said within a short time; an empty text for one that said
  // nothing, no texts at all when they cannot be asked. Never throws.
  virtual std::vector<std::string> last_words(const std::string& own,
                                              const std::vector<int64_t>& peers) = 0;

  // Says where this rank is, in place of what it said before. May be called by another thread than
  // that of the rank. Does not wait long for a store that does not answer, and never throws.
  virtual void leave_note(const std::string& note) = 0;
  // The last note of each of `peers`; empty for one that left none, no notes at all when they
  // cannot be asked. Never throws.
  virtual std::vector<std::string> notes(const std::vector<int64_t>& peers) = 0;
};

}  // namespace switchyard
