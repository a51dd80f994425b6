#pragma once

#include "config/config.h"
#include "parallel/launch.h"
#include "selfcheck/layout_run.h"

namespace switchyard {

// A decoder of two layers and width 16 with every part of the first model in it: grouped key/value
// heads, a shared expert, balance loss and z-loss.
Config small_config();
// The same with all that some families change in every layer: norms, activations, multipliers,
// router.
Config small_varied_config();

// A layout to compare with one rank.
struct Layout {
  const char* name = "";
  int64_t world_size = 1;
  int64_t tensor = 1;
  int64_t expert = 1;
  int64_t expert_tensor = 1;
  bool sequence_parallel = false;
  int64_t pipeline = 1;
  int64_t virtual_pipeline = 1;
  const char* pipeline_layout = "";
  int64_t context = 1;
  ContextExchange exchange = ContextExchange::kRing;
  int64_t ranks_per_node = 0;

  MeshShape mesh() const;
  Config apply(Config config) const;  // with the parallel section of this layout
};

}  // namespace switchyard
