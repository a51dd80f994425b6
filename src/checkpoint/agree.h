#pragma once

#include <functional>
#include <string>
#include <vector>

#include "parallel/group.h"

namespace switchyard {

// Runs `work` on every rank of `world` and makes the outcome common: returns what each rank's
// `work` returned, in rank order, or throws on all ranks what the first failing one threw, with its
// rank in front. A DamagedCheckpoint stays one; any other error becomes a CheckpointError, except
// CommError, which is no outcome that ranks could agree on. Collective; `work` may not be.
std::vector<std::string> run_and_agree(const Group& world,
                                       const std::function<std::string()>& work);

// The same for work of rank 0 alone, for which the others wait.
void run_on_first_rank(const Group& world, const std::function<void()>& work);

}  // namespace switchyard
