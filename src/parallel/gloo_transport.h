#pragma once

#include <torch/csrc/distributed/c10d/Store.hpp>

#include "parallel/transport.h"

namespace switchyard {

// Connects every rank with every other over TCP; `store` is where they find each other, `host` the
// address that this rank is reached at (empty: what its host name resolves to). Collective over the
// world. Throws std::exception when a rank does not come within the timeout.
std::shared_ptr<Transport> make_gloo_transport(const c10::intrusive_ptr<c10d::Store>& store,
                                               int64_t rank, int64_t size, const std::string& host,
                                               std::chrono::milliseconds timeout);

}  // namespace switchyard
