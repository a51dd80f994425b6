#include "parallel/call.h"

#include <algorithm>
#include <chrono>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/error.h"
#include "base/random.h"

namespace switchyard {
namespace {

// Slots: 4 bits of group, 1 that is set in a transfer, 12 of the exchange's number, 14 of what is
// called. All but the last tell apart what may be under way between two ranks; the last keeps calls
// that differ from meeting.
constexpr uint32_t kNumberBits = 12;
constexpr uint32_t kDigestBits = 14;

uint32_t slot_of(int64_t group, Call::FirstExchange exchange, uint64_t digest) {
  const auto low = [](uint64_t value, uint32_t bits) {
    return static_cast<uint32_t>(value & ((uint64_t{1} << bits) - 1));
  };
  const uint32_t kind = 2 * static_cast<uint32_t>(group) + (exchange.is_transfer ? 1 : 0);
  return (kind << (kNumberBits + kDigestBits)) |
         (low(exchange.number, kNumberBits) << kDigestBits) | low(digest, kDigestBits);
}

// The first sentence of an error of Gloo, without the place in its source.
std::string cause(const std::string& text) {
  const size_t place = text.starts_with('[') ? text.find("] ") : std::string::npos;
  const size_t begin = place == std::string::npos ? 0 : place + 2;
  return text.substr(begin, std::min(text.find('\n', begin), text.find(". ", begin)) - begin);
}

}  // namespace

Call::Call(const GroupMembers& members, Transport& transport, Ledger& ledger,
           std::string_view collective, const Site& site, FirstExchange first_exchange)
    : members_(members),
      transport_(transport),
      ledger_(ledger),
      collective_(collective),
      site_(site),
      next_exchange_(first_exchange) {}

std::vector<Parcel> Call::parcels(const Parts& parts) const {
  const uint64_t name = hash_name(fmt::format("{} {}", collective_, site_.full_name()));
  std::vector<Parcel> result;
  // From the next rank on, so that not all members begin with the same one.
  const auto size = static_cast<int64_t>(parts.size());
  for (int64_t step = 1; step < size; ++step) {
    const auto i = static_cast<size_t>((members_.own + step) % size);
    if (parts[i].defined() && parts[i].numel() > 0) {
      const uint64_t digest = hash_name(fmt::format("{} {}", name, parts[i].nbytes()));
      result.push_back({members_.ranks[i], slot_of(members_.id, next_exchange_, digest), parts[i]});
    }
  }
  return result;
}

std::unique_ptr<Transport::Exchange> Call::start(const Parts& sends, const Parts& receives) {
  const std::vector<Parcel> outgoing = parcels(sends);
  const std::vector<Parcel> incoming = parcels(receives);
  ++next_exchange_.number;
  for (const Parcel& parcel : outgoing) {
    bytes_ += static_cast<int64_t>(parcel.tensor.nbytes());
  }
  try {
    return transport_.exchange(outgoing, incoming);
  } catch (const PeerLost& lost) {
    report(lost);
  }
}

void Call::wait(Exchange& exchange) const {
  try {
    exchange.wait();
  } catch (const PeerLost& lost) {
    report(lost);
  }
}

void Call::record() const {
  ledger_.record(site_, collective_, members_.name, bytes_, seconds_);
}

void Call::report(const PeerLost& lost) const {
  const double timeout = std::chrono::duration<double>(transport_.timeout()).count();
  std::string text = fmt::format(
      "[{}] {} \"{}\" over group {} of ranks {} failed: {}", members_.whoami, collective_,
      site_.full_name(), members_.name, fmt::join(members_.ranks, " "),
      lost.is_timeout ? fmt::format("rank {} did not take part within {} s", lost.peer, timeout)
                      : fmt::format("the connection to rank {} is lost", lost.peer));
  const auto own_words = fmt::format("failed in {} \"{}\" over group {}", collective_,
                                     site_.full_name(), members_.name);
  const auto words = transport_.last_words(own_words, members_.ranks);
  for (size_t i = 0; i < words.size(); ++i) {
    if (static_cast<int64_t>(i) != members_.own) {
      text += fmt::format("; rank {} {}", members_.ranks[i],
                          words[i].empty() ? "is silent: dead, hung or still computing" : words[i]);
    }
  }
  throw CommError(fmt::format("{}. Look for the first error in the output of those ranks. ({})",
                              text, cause(lost.what())));
}

}  // namespace switchyard
