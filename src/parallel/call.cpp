#include "parallel/call.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <ATen/ATen.h>

#include "base/error.h"
#include "base/random.h"

namespace switchyard {
namespace {

// Slots: 4 bits of group, 1 that is set in a transfer, 12 of the exchange's number, 14 of what is
// called. All but the last tell apart what may be under way between two ranks; the last keeps calls
// that differ from meeting.
constexpr uint32_t kNumberBits = 12;
constexpr uint32_t kDigestBits = 14;

// Of exchanges that compare calls: the same whatever is called.
constexpr std::string_view kVerifyTopic = "verify";
constexpr int64_t kTextBytes = 512;  // longer descriptions are cut

uint32_t slot_of(int64_t group, Call::FirstExchange exchange, uint64_t digest) {
  const auto low = [](uint64_t value, uint32_t bits) {
    return static_cast<uint32_t>(value & ((uint64_t{1} << bits) - 1));
  };
  const uint32_t kind = 2 * static_cast<uint32_t>(group) + (exchange.is_transfer ? 1 : 0);
  return (kind << (kNumberBits + kDigestBits)) |
         (low(exchange.number, kNumberBits) << kDigestBits) | low(digest, kDigestBits);
}

// A text as it travels, cut and filled up to kTextBytes.
at::Tensor to_bytes(const std::string& text) {
  at::Tensor bytes = at::zeros({kTextBytes}, at::kByte);
  std::copy_n(text.begin(), std::min(text.size(), size_t{kTextBytes - 1}),
              static_cast<char*>(bytes.mutable_data_ptr()));
  return bytes;
}

std::string to_text(const at::Tensor& bytes) {
  return static_cast<const char*>(bytes.const_data_ptr());
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
      position_(ledger.position()),
      next_exchange_(first_exchange) {
  position_.layer = site.layer >= 0 ? site.layer : position_.layer;
}

Whereabouts::Place Call::place() const {
  return {collective_, site_.name, &members_.name, &members_.ranks, position_};
}

std::string Call::topic() const {
  return fmt::format("{} {}", collective_, site_.full_name());
}

std::vector<Parcel> Call::parcels(const Parts& parts, std::string_view topic) const {
  const uint64_t name = hash_name(topic);
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
  for (size_t i = 0; i < sends.size(); ++i) {
    const bool leaves = static_cast<int64_t>(i) != members_.own && sends[i].defined();
    bytes_ += leaves ? static_cast<int64_t>(sends[i].nbytes()) : 0;
  }
  return start(sends, receives, topic());
}

std::unique_ptr<Transport::Exchange> Call::start(const Parts& sends, const Parts& receives,
                                                 std::string_view topic) {
  const std::vector<Parcel> outgoing = parcels(sends, topic);
  const std::vector<Parcel> incoming = parcels(receives, topic);
  ++next_exchange_.number;
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

// One text of each member, whatever it is about to call: the slot says nothing of that.
std::vector<std::string> Call::exchange_texts(const std::string& own) {
  const size_t num_members = members_.ranks.size();
  Parts texts = at::zeros({std::ssize(members_.ranks), kTextBytes}, at::kByte).unbind();
  texts[static_cast<size_t>(members_.own)].copy_(to_bytes(own));
  wait(*start(Parts(num_members, texts[static_cast<size_t>(members_.own)]), texts, kVerifyTopic));
  std::vector<std::string> result;
  for (const at::Tensor& text : texts) {
    result.push_back(to_text(text));
  }
  return result;
}

std::string Call::describe(const CallContent& content) const {
  const std::string place = position_.text();
  return fmt::format("{} \"{}\" of {} [{}]{}{}{}{}", collective_, site_.full_name(),
                     c10::toString(content.dtype), fmt::join(content.sizes, ", "),
                     content.detail.empty() ? "" : ", ", content.detail,
                     place.empty() ? "" : " in ", place);
}

void Call::verify(const CallContent& content) {
  const std::vector<std::string> texts = exchange_texts(describe(content));
  for (size_t i = 1; i < texts.size(); ++i) {
    check<CommError>(texts[i] == texts[0],
                     "[{}] calls over group {} of ranks {} differ: rank {} makes {}; rank {} "
                     "makes {}",
                     members_.whoami, members_.name, fmt::join(members_.ranks, " "),
                     members_.ranks[0], texts[0], members_.ranks[i], texts[i]);
  }
  verify_rows(content);
}

// First what the sender says, then what the receiver says; neither waits here.
Call::Comparison Call::start_comparing(size_t other, bool is_send, const CallContent& content) {
  Comparison comparison{other, is_send, to_bytes(describe(content)),
                        at::zeros({kTextBytes}, at::kByte)};
  const Parts none(members_.ranks.size());
  Parts own_text = none;
  Parts other_text = none;
  own_text[other] = comparison.own_text;
  other_text[other] = comparison.other_text;
  for (const bool is_senders : {true, false}) {
    const bool speaks = is_senders == is_send;
    comparison.exchanges.push_back(
        start(speaks ? own_text : none, speaks ? none : other_text, kVerifyTopic));
  }
  return comparison;
}

void Call::compare(const Comparison& comparison) const {
  for (const auto& exchange : comparison.exchanges) {
    wait(*exchange);
  }
  const std::string own = to_text(comparison.own_text);
  const std::string others = to_text(comparison.other_text);
  const int64_t own_rank = members_.ranks[static_cast<size_t>(members_.own)];
  const int64_t other_rank = members_.ranks[comparison.other];
  check<CommError>(own == others,
                   "[{}] transfers over group {} differ: rank {} sends {}; rank {} receives {}",
                   members_.whoami, members_.name, comparison.is_send ? own_rank : other_rank,
                   comparison.is_send ? own : others, comparison.is_send ? other_rank : own_rank,
                   comparison.is_send ? others : own);
}

// Every member hears how many rows each other will send it; all throw, since all see all counts.
void Call::verify_rows(const CallContent& content) {
  if (content.sends.empty()) {
    ++next_exchange_.number;
    return;
  }
  const int64_t size = std::ssize(members_.ranks);
  std::vector<int64_t> own = content.sends;
  own.insert(own.end(), content.receives.begin(), content.receives.end());
  Parts counts = at::empty({size, 2 * size}, at::kLong).unbind();
  counts[static_cast<size_t>(members_.own)].copy_(at::tensor(own, at::kLong));
  const at::Tensor mine = counts[static_cast<size_t>(members_.own)];
  wait(*start(Parts(counts.size(), mine), counts, kVerifyTopic));
  for (int64_t from = 0; from < size; ++from) {
    for (int64_t to = 0; to < size; ++to) {
      const auto sent = counts[static_cast<size_t>(from)].const_data_ptr<int64_t>()[to];
      const auto expected = counts[static_cast<size_t>(to)].const_data_ptr<int64_t>()[size + from];
      check<CommError>(sent == expected,
                       "[{}] {} \"{}\" over group {} of ranks {}{}{}: rank {} sends {} rows to "
                       "rank {}, which expects {}",
                       members_.whoami, collective_, site_.full_name(), members_.name,
                       fmt::join(members_.ranks, " "), position_.text().empty() ? "" : " in ",
                       position_.text(), members_.ranks[static_cast<size_t>(from)], sent,
                       members_.ranks[static_cast<size_t>(to)], expected);
    }
  }
}

void Call::start_in_background(std::function<void()> work) {
  began_ = Clock::now();
  waited_before_ = ledger_.seconds();
  ended_ = std::async(std::launch::async, [work = std::move(work)] {
    work();
    return Clock::now();
  });
}

void Call::finish_in_background() {
  const Clock::time_point needed = Clock::now();
  Clock::time_point ended;
  timed([&] { ended = ended_.get(); });
  const auto meanwhile = std::chrono::duration<double>(std::min(ended, needed) - began_).count();
  hidden_seconds_ = std::max(0.0, meanwhile - (ledger_.seconds() - waited_before_));
}

void Call::record() const {
  ledger_.record(site_, collective_, members_.name, bytes_, seconds_, hidden_seconds_);
}

// What is known of a rank that said nothing; and, where it waits in a call of another group, of
// those it waits for, so that the rank which keeps all waiting is named. Adds to `asked` who was.
std::string Call::silence_of(int64_t rank, std::vector<int64_t>& asked) const {
  std::string text = fmt::format("; rank {} is silent: dead, hung or still computing", rank);
  const std::vector<std::string> notes = transport_.notes({rank});
  const Note note = notes.empty() ? Note{} : Note::decoded(notes[0]);
  text += note.text.empty() ? "" : fmt::format(", last heard of {}", note.text);
  for (const int64_t other : note.waits_for) {
    if (std::find(asked.begin(), asked.end(), other) == asked.end()) {
      asked.push_back(other);
      text += silence_of(other, asked);
    }
  }
  return text;
}

void Call::report(const PeerLost& lost) const {
  const double timeout = std::chrono::duration<double>(transport_.timeout()).count();
  const std::string place = position_.text().empty() ? "" : " in " + position_.text();
  std::string text = fmt::format(
      "[{}] {} \"{}\" over group {} of ranks {} failed{}: {}", members_.whoami, collective_,
      site_.full_name(), members_.name, fmt::join(members_.ranks, " "), place,
      lost.is_timeout ? fmt::format("rank {} did not take part within {} s", lost.peer, timeout)
                      : fmt::format("the connection to rank {} is lost", lost.peer));
  const auto own_words =
      fmt::format("failed in {} \"{}\" over group {}{}, where it lost rank {}", collective_,
                  site_.full_name(), members_.name, place, lost.peer);
  const auto words = transport_.last_words(own_words, members_.ranks);
  std::vector<int64_t> asked = members_.ranks;
  for (size_t i = 0; i < words.size(); ++i) {
    if (static_cast<int64_t>(i) != members_.own) {
      text += words[i].empty() ? silence_of(members_.ranks[i], asked)
                               : fmt::format("; rank {} {}", members_.ranks[i], words[i]);
    }
  }
  throw CommError(fmt::format("{}. Look for the first error in the output of those ranks. ({})",
                              text, cause(lost.what())));
}

}  // namespace switchyard
