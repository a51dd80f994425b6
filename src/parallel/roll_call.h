#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include <torch/csrc/distributed/c10d/Store.hpp>

namespace switchyard {

// What a rank says of itself before anything else is sent.
struct Introduction {
  int64_t rank = 0;
  int64_t world_size = 1;
  std::string program;   // the same for ranks of the same program
  std::string settings;  // one per line; the same on all ranks
  std::string node;      // the same for ranks of one machine
};

// What is wrong with the ranks that came, or "": other programs, settings or numbers of ranks than
// rank 0's, which comes first. One line that names the first rank that differs and what differs.
std::string disagreement(const std::vector<Introduction>& introductions);

// Meets all others at `store` and compares introductions. Returns the number of each rank's
// machine, counted from 0 in the order of ranks. Collective over the world. Throws ConfigError when
// the ranks do not belong together, or when two have the same number; CommError when some do not
// come within the timeout. Each names the ranks, and all ranks that came throw it.
std::vector<int64_t> call_roll(c10d::Store& store, const Introduction& own,
                               std::chrono::milliseconds timeout);

}  // namespace switchyard
