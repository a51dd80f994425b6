#include "launched_groups.h"

#include <chrono>

#include "config/rules.h"
#include "parallel/launch.h"

namespace switchyard {

std::unique_ptr<Groups> join_launched_ranks(const Config& config) {
  const LaunchEnvironment environment = read_launch_environment();
  check_rules_of_world(config, environment.world_size);
  const ParallelConfig& parallel = config.parallel;
  const MeshShape shape{.world_size = environment.world_size,
                        .tensor = parallel.tensor_size,
                        .context = parallel.context_size,
                        .pipeline = parallel.pipeline_size,
                        .expert = parallel.expert_size,
                        .expert_tensor = parallel.expert_tensor_size,
                        .order = parallel.order};
  return connect(environment, shape, std::chrono::seconds(parallel.timeout_s));
}

}  // namespace switchyard
