#pragma once

// The only header that shows c10d; included by sources of this folder alone.
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include "parallel/group.h"

namespace switchyard {

struct Group::Backend {
  c10::intrusive_ptr<c10d::Backend> c10d;
  std::chrono::milliseconds timeout;
};

// A Gloo group over `store`, which all members share; `key` tells groups apart. Collective.
std::shared_ptr<Group::Backend> make_gloo_backend(const c10::intrusive_ptr<c10d::Store>& store,
                                                  const std::string& key, int64_t rank,
                                                  int64_t size, const std::string& host,
                                                  std::chrono::milliseconds timeout);

}  // namespace switchyard
