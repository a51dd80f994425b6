#include "launched_groups.h"

#include <algorithm>
#include <chrono>
#include <cstdlib>

#include <ATen/Parallel.h>

#include "config/rules.h"
#include "parallel/launch.h"

namespace switchyard {
namespace {

void share_cores(int64_t ranks_on_host) {
  // Slurm binds its ranks to cores of their own, which OpenMP sees; torchrun sets OMP_NUM_THREADS.
  if (ranks_on_host > 1 && std::getenv("OMP_NUM_THREADS") == nullptr) {
    at::set_num_threads(
        static_cast<int>(std::max(int64_t{1}, at::get_num_threads() / ranks_on_host)));
  }
}

}  // namespace

std::unique_ptr<Groups> join_launched_ranks(const Config& config) {
  const LaunchEnvironment environment = read_launch_environment();
  check_rules_of_world(config, environment.world_size);
  share_cores(environment.ranks_on_host);
  const ParallelConfig& parallel = config.parallel;
  return connect(environment, mesh_shape(parallel, environment.world_size),
                 std::chrono::seconds(parallel.timeout_s));
}

}  // namespace switchyard
