#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "pipeline/schedule.h"

namespace switchyard {

// What is wrong with a schedule, in words; nothing: it can be run. Independent of how schedules are
// made. It is right when
//   every micro-batch runs forward and backward once in every stage, on the stage's rank, forward
//   before backward, and in rising order where it runs forward (sums over micro-batches so far);
//   every computation's input is received before it and its output sent after it, once;
//   between two ranks, what one sends is what the other receives, in the same order;
//   simulated, it comes to its end.
std::vector<std::string> faults_of(const Schedule& schedule);

// How many micro-batches of its stages each rank holds activations of at once, at most: from their
// forward pass to the end of their backward pass. [ranks]
std::vector<int64_t> most_in_flight(const Schedule& schedule);

}  // namespace switchyard
