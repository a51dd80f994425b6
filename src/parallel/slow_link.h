#pragma once

#include <memory>

#include "parallel/transport.h"

namespace switchyard {

// How fast a rank sends. The defaults: at once.
struct LinkSpeed {
  double latency_s = 0;    // from when the last byte has left until it arrives
  double bytes_per_s = 0;  // of all that the rank sends, one thing after the other; 0: no limit

  bool is_slower() const { return latency_s > 0 || bytes_per_s > 0; }
};

// `transport` as it would be over a slower network: what this rank sends leaves in order, takes its
// bytes' time on the link and arrives a latency later. Everything else stays as it is; nothing is
// computed for it, so that it goes on while the rank computes.
std::shared_ptr<Transport> make_slow_link(std::shared_ptr<Transport> transport,
                                          const LinkSpeed& speed);

}  // namespace switchyard
