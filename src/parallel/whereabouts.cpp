#include "parallel/whereabouts.h"

#include <sstream>

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace switchyard {
namespace {

std::string describe(const Whereabouts::Place& place) {
  const std::string position = place.position.text();
  return fmt::format("{} \"{}\" over group {} of ranks {}{}{}", place.collective, place.site,
                     *place.group, fmt::join(*place.ranks, " "), position.empty() ? "" : " in ",
                     position);
}

}  // namespace

std::string RunPosition::text() const {
  if (step < 0) {
    return layer < 0 ? "" : fmt::format("layer {}", layer);
  }
  return layer < 0 ? fmt::format("step {}", step) : fmt::format("step {}, layer {}", step, layer);
}

std::string Note::encoded() const {
  return fmt::format("{}\n{}", fmt::join(waits_for, " "), text);
}

Note Note::decoded(const std::string& text) {
  const size_t end = text.find('\n');
  if (end == std::string::npos) {
    return {};
  }
  Note note{text.substr(end + 1), {}};
  std::istringstream ranks(text.substr(0, end));
  for (int64_t rank = 0; ranks >> rank;) {
    note.waits_for.push_back(rank);
  }
  return note;
}

Whereabouts::InCall::InCall(Whereabouts& whereabouts, const Place& place)
    : whereabouts_(whereabouts) {
  const std::lock_guard lock(whereabouts_.mutex_);
  whereabouts_.place_ = place;
  whereabouts_.is_in_call_ = true;
}

Whereabouts::InCall::~InCall() {
  const std::lock_guard lock(whereabouts_.mutex_);
  whereabouts_.is_in_call_ = false;
}

Note Whereabouts::note() const {
  const std::lock_guard lock(mutex_);
  if (place_.group == nullptr) {
    return {"outside of calls, before its first", {}};
  }
  return is_in_call_ ? Note{"in " + describe(place_), *place_.ranks}
                     : Note{"outside of calls, after " + describe(place_), {}};
}

}  // namespace switchyard
