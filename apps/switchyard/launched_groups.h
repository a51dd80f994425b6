#pragma once

#include <memory>

#include "config/config.h"
#include "parallel/groups.h"

namespace switchyard {

// The groups of this process among the ranks its launcher started, laid out as parallel.* says. One
// process without a launcher is a world of one. Ranks that share a machine share its cores, unless
// OMP_NUM_THREADS or train.threads says otherwise. Collective over the world.
std::unique_ptr<Groups> join_launched_ranks(const Config& config);

}  // namespace switchyard
